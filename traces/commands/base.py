"""The interface of commands: each command is one file in this folder, found by its name.

A command has SUMMARY (one line; `hicache --help` reads it without importing the file), `Options` (a
frozen record of its options), `add_options(parser)` and `run(options, command)`. Does not contain
any command.
"""

from __future__ import annotations

import argparse
from typing import Any, Protocol

from ..terminal.options import OptionRecord

COMMANDS = "traces.commands"


class Command(Protocol):
    """A module of this folder."""

    SUMMARY: str
    Options: type[OptionRecord]

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Adds every option with its default and its help."""

    def run(self, options: Any, command: str) -> int:
        """Runs the command and returns its exit code.

        options: a record of `Options`. command: the command line as the user typed it.
        """
