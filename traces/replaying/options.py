"""The options of `hicache replay` as one frozen record, which is also their declaration.

Each field is an option with its row (see terminal/rows). A new option is a field of a file in
`declared`. Does not fill in what was not given (see settings and pools).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..terminal.options import Names
from ..terminal.rows import Declared, rows
from .declared.cache import CacheOptions, ComponentOptions, HostOptions
from .declared.engine import EngineOptions
from .declared.fleet import FleetOptions
from .declared.load import LoadOptions
from .declared.needs import Need
from .declared.run import OutputOptions, ReplayedTrace, RunOptions
from .declared.storage import StorageOptions


# the fields of the last class come first
@dataclass(frozen=True)
class ReplayOptions(
    OutputOptions,
    FleetOptions,
    StorageOptions,
    ComponentOptions,
    LoadOptions,
    HostOptions,
    CacheOptions,
    EngineOptions,
    RunOptions,
    ReplayedTrace,
):
    """None means not given: the value is then a default, or follows from the model, the hardware or
    the trace. So an option that the run would ignore can be told from its default (see unread)."""

    @property
    def files(self) -> dict[str, str]:
        """The files that the options name, by option."""
        found = {}
        for one in OPTIONS:
            value = getattr(self, one.name)
            path = one.row.file(value) if one.row.file and value is not None else None
            if path is not None:
                found[one.name] = path
        return found

    @property
    def entries(self) -> list[tuple[str, str]]:
        """The policies, schedulers and time models that the options name, with their folders."""
        found = []
        for one in OPTIONS:
            value = getattr(self, one.name)
            if isinstance(one.row.parse, Names) and one.row.parse.package and value is not None:
                found.append((one.row.parse.package, value))
        return found

    @property
    def head(self) -> dict[str, object]:
        """The options that are in the head of a document as they were given."""
        return {one.name: plain(getattr(self, one.name)) for one in OPTIONS if one.row.in_head}


OPTIONS: list[Declared] = rows(ReplayOptions)
OUTPUTS = tuple(one.name for one in OPTIONS if one.row.output)
HOST_SIZES = tuple(one.name for one in rows(HostOptions))


def that_need(need: Need) -> tuple[str, ...]:
    """The options that only a run with this reads."""
    return tuple(one.name for one in OPTIONS if need in one.row.needs)


def plain(value: object) -> object:
    """A value of an option as a JSON value."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    return value if isinstance(value, int | float | str | None) else str(value)
