"""The argument parser whose errors are one line, and the format of its help.

Does not define options; each command and each generator defines its own. Does not read values; see
traces/terminal/options.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from hicache.core.errors import CallerError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises CallerError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise CallerError(f"{message} (see {self.prog} --help)")


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds the default of an option to its help, unless the help names a default already."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, (), []) or "(default: " in (action.help or "")
        return action.help if silent else super()._get_help_string(action)
