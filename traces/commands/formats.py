"""`hicache formats`: the formats of traces that the other commands read.

Does not read a trace; see traces/formats.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache import registry

from ..formats._open import FORMATS
from ..terminal.options import OptionRecord
from ..terminal.tables import console, table

SUMMARY = "list the formats of traces that are read"
GROUP = "look"


@dataclass(frozen=True)
class Options(OptionRecord):
    """None."""


def run(options: Options, command: str) -> int:
    shown = table("Formats of traces (--format; found by the first line)", "format", "what it is")
    shown.columns[1].justify = "left"
    for name in registry.names(FORMATS):
        shown.add_row(name, registry.summary(FORMATS, name))
    console().print(shown)
    return 0
