"""The argument parser whose errors are one line, and the format of its help.

Does not define options; each command and each generator defines its own. Does not read the values
of options; see traces/terminal/options.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from hicache import registry
from hicache.core.errors import CallerError

from .options import WITHOUT_SPACES, is_size


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises CallerError instead of printing its usage, and takes options
    by their whole names alone."""

    def __init__(self, **given: Any) -> None:
        super().__init__(allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        raise CallerError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Reads all arguments. The error for an unknown option suggests the closest one."""
        found: argparse.Namespace
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            given = next((word.partition("=")[0] for word in unknown if word[:1] == "-"), "")
            hint = registry.closest(given, [*option_names(self)])
            if not given and any(is_size(word) for word in unknown):
                hint = f"; {WITHOUT_SPACES}"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggests the closest name where a parser below this one was misspelt."""
        if action.choices is not None and value not in action.choices:
            known = [str(one) for one in action.choices]
            found = f"found {value!r}{registry.closest(value, known)}"
            raise argparse.ArgumentError(action, f"expected one of {', '.join(known)}, {found}")


def option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of the parser and of the parsers below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from option_names(below)


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds the default of an option to its help, unless the help names a default already."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, (), []) or "(default: " in (action.help or "")
        return action.help if silent else super()._get_help_string(action)
