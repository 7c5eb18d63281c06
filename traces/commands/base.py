"""What a command is: one file in this folder, found by its name.

It has SUMMARY (one line for `hicache --help`, which reads it without importing the file), `Options`
(a frozen record of what was asked for), `add_options(parser)` and `run(options, command)`.
Must not live here: any command.
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
        """Every option, its default and its help."""

    def run(self, options: Any, command: str) -> int:
        """The exit code. options: a record of `Options`. command: what the user typed."""
