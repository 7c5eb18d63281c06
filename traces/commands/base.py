"""The interface of commands: each command is one file in this folder, found by its name.

A command has SUMMARY and GROUP (one line each; `hicache --help` reads them without importing the
file), `Options` (a frozen record, whose fields are its options, see terminal/rows) and
`run(options, command)`. What is no field with a row, `add_options(parser)` adds. Does not contain
any command.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..terminal.options import OptionRecord

COMMANDS = "traces.commands"


class Command(Protocol):
    """A module of this folder."""

    SUMMARY: str
    GROUP: str
    Options: type[OptionRecord]

    def run(self, options: Any, command: str) -> int:
        """Runs the command and returns its exit code.

        options: a record of `Options`. command: the command line as the user typed it.
        """
