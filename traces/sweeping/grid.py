"""A grid of replays: options with several values each, and the points that they make.

An option that a point would not read is left out there (a write policy where there is no host
memory), and points that are then the same are one. An option that no point reads is an error, as in
`hicache replay`. Every point is resolved before the first one runs, and all that is wrong is told
at once. Does not read the command line (see commands/_grid_options) or run a point (see work).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from hicache.core.errors import CallerError
from hicache.version import VERSION

from ..formats.base import Trace
from ..replaying.config import resolve
from ..replaying.options import ReplayOptions, Unread, plain
from ..replaying.storage import SIMULATED, simulated
from ..terminal.options import flag
from ..terminal.streams import command_line
from .work import Task, canonical, decisions, key_of, trace_digest

MOST_POINTS = 10_000
_SHOWN = 20  # faults, and points of a fault
_NOT_GIVEN = {"exclusive": False}  # what stands for an option that is left out, if not None


@dataclass(frozen=True, slots=True)
class Value:
    """A value of an option, as it was typed and as it was read."""

    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Axis:
    """An option that varies. name: the field of ReplayOptions."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One replay of a grid. varied: the options of the axes that it reads, by name."""

    options: ReplayOptions
    varied: dict[str, Value]

    @property
    def label(self) -> str:
        """The name of the point for people, from the texts of its options."""
        varied = (f"{name.replace('_', '-')}={value.text}" for name, value in self.varied.items())
        return " ".join(varied) or "base"

    def command(self, fixed: Mapping[str, tuple[str, ...]]) -> str:
        """The `hicache replay` that does the same. fixed: of the grid."""
        words = ["hicache", "replay", *([self.options.trace] if self.options.trace else [])]
        for name, own in fixed.items():
            if name not in self.varied and getattr(self.options, name) not in (None, False):
                words += own
        for name, value in self.varied.items():
            words += [flag(name), value.text]
        return command_line(words)


@dataclass(frozen=True, slots=True)
class Grid:
    """base: the options with one value. axes: those with several. fixed: the options of `base`
    that were given, as words of a command line."""

    base: ReplayOptions
    axes: tuple[Axis, ...] = ()
    fixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return prod(len(axis.values) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        """All combinations, the last axis changes fastest."""
        for values in product(*(axis.values for axis in self.axes)):
            varied = dict(zip((axis.name for axis in self.axes), values, strict=True))
            given = {name: value.value for name, value in varied.items()}
            yield Point(replace(self.base, **given), varied)


class Faults(CallerError):
    """Everything that is wrong with a grid, a line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


def resolved(grid: Grid, opened: Callable[[ReplayOptions], Trace]) -> list[Point]:
    """The different points of the grid, each with the options that it reads.

    opened: the trace that a point replays. Raises CallerError with everything that is wrong.
    """
    if len(grid) > MOST_POINTS:
        raise CallerError(
            f"the grid: expected at most {MOST_POINTS:,} points, found {len(grid):,}; give fewer "
            "values"
        )
    names = [*grid.fixed, *(axis.name for axis in grid.axes)]
    found: dict[str, Point] = {}
    faults: dict[str, list[str]] = {}
    unread: dict[str, str] = {}
    read: set[str] = set()
    for point in grid.points():
        try:
            point, left_out = _read(point, names, opened)
        except CallerError as error:
            faults.setdefault(str(error), []).append(point.label)
            continue
        unread |= left_out
        read |= {*names} - {*left_out}
        found.setdefault(repr(canonical(point.options)), point)
    faults |= {fault: [] for name, fault in unread.items() if name not in read}
    if faults:
        raise Faults(_told(faults, len(grid)))
    return list(found.values())


def _read(
    point: Point, names: Sequence[str], opened: Callable[[ReplayOptions], Trace]
) -> tuple[Point, dict[str, str]]:
    """The point with the options that it reads, and why others are not read, by name."""
    left_out: dict[str, str] = {}
    check_simulated(point.options.storage)
    while True:
        try:
            resolve(point.options, opened(point.options))
        except Unread as error:
            if error.field in left_out or error.field not in names:
                raise
            left_out[error.field] = str(error)
            without = {error.field: _NOT_GIVEN.get(error.field)}
            varied = {name: one for name, one in point.varied.items() if name != error.field}
            point = Point(replace(point.options, **without), varied)  # type: ignore[arg-type]
        else:
            return point, left_out


def check_simulated(stored: str | None) -> None:
    """Raises CallerError for a real store, which several points would share, and for a simulated
    one with settings that cannot be read."""
    if stored is None:
        return
    scheme, _, settings = stored.partition(":")
    if scheme == SIMULATED:
        simulated(settings, seed=0)
    else:
        raise CallerError(
            f"--storage: expected {SIMULATED}:..., since a point would find what others have "
            f"stored, found {stored}; give a simulated one"
        )


def _told(faults: dict[str, list[str]], points: int) -> list[str]:
    """One line for each fault, with the points that have it."""
    lines = []
    for fault, labels in faults.items():
        if not labels or points == 1:
            where = ""
        elif len(labels) == points:
            where = " (all points)"
        else:
            more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
            where = f" (point {'; '.join(labels[:_SHOWN])}{more})"
        lines.append(f"{fault}{where}")
    more_faults = len(lines) - _SHOWN
    rest = [f"and {more_faults} more faults"] if more_faults > 0 else []
    return [*lines[:_SHOWN], *rest]


def header_of(grid: Grid, command: str) -> dict[str, Any]:
    """What the file of a sweep begins with."""
    return {
        "hicache_version": VERSION,
        "decisions": decisions(),
        "command": command,
        "trace": {"path": grid.base.trace, "sha256": trace_digest(grid.base.trace)},
        "base": canonical(grid.base),
        "grid": {axis.name: [plain(one.value) for one in axis.values] for axis in grid.axes},
    }


def tasks_of(
    points: Sequence[Point], fixed: Mapping[str, tuple[str, ...]], trace: str
) -> list[Task]:
    """The points as tasks of workers. fixed: see Grid. trace: its digest."""
    return [
        Task(
            number,
            key_of(point.options, trace),
            point.label,
            {name: plain(one.value) for name, one in point.varied.items()},
            point.options,
            point.command(fixed),
        )
        for number, point in enumerate(points)
    ]
