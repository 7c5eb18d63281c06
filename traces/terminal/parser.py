"""The parser that fails in one line, and how its help looks.

Must not live here: which options exist (each command's and generator's own file), or how a value
is read (traces/terminal/options).
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from hicache.core.errors import CallerError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are one CallerError instead of a usage screen."""

    def error(self, message: str) -> NoReturn:
        raise CallerError(f"{message} (see {self.prog} --help)")


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of an option that has one, unless its help says it in words."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, (), []) or "(default: " in (action.help or "")
        return action.help if silent else super()._get_help_string(action)
