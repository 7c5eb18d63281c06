"""`hicache sweep`: replays a trace at every point of a grid, and shows which points are best.

Takes the options of `hicache replay`, each with several values: commas separate them, and an option
may be given several times. An option whose one value may have commas (`--components full,swa`)
takes one value each time. `all` stands for every name that the option knows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any, Self

from hicache.core.errors import CallerError

from .. import executors
from ..curves import lru_curve
from ..replaying.config import resolve
from ..replaying.options import ReplayOptions
from ..reporting.outputs import check_files, repeat_warnings, warn
from ..results.record import head
from ..sweeping import table
from ..sweeping.points import Grid, How, Value, header_of, measured, opened_once, tasks_of
from ..terminal import options as read
from ..terminal.options import Declared, Names, option, rows
from ..terminal.output import write_json, write_whole
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import print_written
from ._options import WorkerOptions, of_replay

COMPILED = True
_ALL = "all"
_WITH_COMMAS = ", ".join(one.flag for one in of_replay() if one.row.commas)
EPILOG = (
    "Every option of hicache replay with a value takes several here, separated by commas: "
    f"--host-ratio 0,1,2. {_ALL} stands for every name that an option knows: --write-policy {_ALL}."
    f" Options may be repeated; {_WITH_COMMAS} must be, since one value of theirs may have commas."
)


@dataclass(frozen=True, kw_only=True)
class Options(WorkerOptions):
    grid: Grid
    output: str | None = option(
        "keep each point here when it is done (JSON lines), and do only what is missing",
        *read.FILE,
        short="-o",
    )
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)
    picture: str | None = option(
        "draw what host memory buys, where --host-bytes alone has several values (SVG; - is "
        "stdout)",
        *read.OUTPUT,
    )

    @classmethod
    def declared(cls) -> list[Declared]:
        """Every option of `hicache replay`; those that may vary are lists."""
        return [*rows(cls), *(_as_list(one) if _varies(one) else one for one in of_replay())]

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        base: dict[str, Any] = {}
        axes: dict[str, tuple[Value, ...]] = {}
        fixed: dict[str, tuple[str, ...]] = {}
        for one in of_replay():
            name, found = one.name, values.pop(one.name)
            if _varies(one) and found is not None:
                kept: dict[Any, Value] = {}
                for value in chain.from_iterable(found):
                    kept.setdefault(value.value, value)
                first, *more = kept.values()
                if all(isinstance(one, int | Fraction) for one in kept):  # ascending
                    first, *more = sorted(kept.values(), key=lambda one: one.value)
                fixed[name] = one.flag, first.text
                if more:
                    axes[name] = first, *more
                found = first.value
            elif _varies(one):
                found = one.default
            elif found != one.default and not one.row.positional:
                fixed[name] = (one.flag,) if found is True else (one.flag, str(found))
            base[name] = found
        return cls(grid=Grid(ReplayOptions(**base), axes, fixed), **values)


def _varies(one: Declared) -> bool:
    """Whether the option may have several values."""
    return not (one.row.parse is None or one.row.positional or one.row.one_value)


def _as_list(one: Declared) -> Declared:
    shown = "" if one.default is None else f" (default: {one.default})"
    about = one.row.help if isinstance(one.row.help, str) else one.row.help()
    row = replace(one.row, parse=_listed(one), several=True, help=about + shown)
    return replace(one, default=None, row=row)


def _listed(one: Declared) -> Callable[[str], tuple[Value, ...]]:
    """A parser of a list of what the option reads."""
    parse = one.row.parse
    assert parse is not None

    def read(text: str) -> tuple[Value, ...]:
        if text == _ALL and isinstance(parse, Names):
            return tuple(Value(name, parse(name)) for name in parse.known())
        parts = [text] if one.row.commas else [part.strip() for part in text.split(",")]
        return tuple(Value(part, parse(part)) for part in parts)

    return read


def run(options: Options, command: str) -> int:
    grid = options.grid
    check_files(grid.base, output=options.output, json=options.json, picture=options.picture)
    table.check_picture(options.picture, "--picture")
    if options.picture is not None and not table.of_host_memory(grid):
        raise CallerError(
            "--picture: expected several --host-bytes of one server without storage, and one value "
            "of every other option; give such as --host-bytes 0,256GB,1TB"
        )
    if grid.base.trace == "-":
        raise CallerError(
            "-: expected a file, which every worker reads, found standard input; write it to a file"
        )
    executors.check(options.executor)
    out = sys.stderr if "-" in (options.json, options.picture) else sys.stdout
    grid = replace(grid, base=replace(grid.base, check=grid.base.check or "off"))
    header = header_of(grid, command)
    tasks, too_large = tasks_of(grid, header["trace"]["sha256"])
    for label, why in too_large.items():
        print_error(f"left out: {label}: {why}")
    if len(tasks) < (fit := len(grid) - len(too_large)):
        print_error(
            f"{fit} combinations are {len(tasks)} different points: an option that a point does "
            "not read is left out there"
        )
    trace = opened_once(tasks[0].options)
    settings, paged = resolve(tasks[0].options, trace)
    warnings = warn(trace, settings)
    how = How(options.executor, options.jobs or 0, options.output, "sweep")
    done = measured(tasks, how, header)
    outcomes = [table.outcome_of(point) for point in done.points]
    enough = None
    if table.of_host_memory(grid) and trace.identity and not grid.base.exclusive:
        enough = table.enough_bytes(lru_curve(paged), settings)
    with ignore_broken_pipe():
        repeat_warnings(warnings, out)
        if outcomes:
            table.print_outcomes(done.points, outcomes, grid, len(tasks), enough, out)
    if options.json:
        found = {
            **head(command, not done.code),
            **{name: header[name] for name in ("decisions", "trace", "base", "grid")},
            "points": outcomes,
            "left_out": too_large,
            "front": [one["label"] for one in table.front(outcomes)],
            "enough_host_bytes": enough,
            "warnings": warnings,
        }
        write_json(options.json, found)
    drawn = table.of_sizes(done.points) if options.picture else ""
    if options.picture and drawn:
        write_whole(options.picture, [drawn])
    print_written((options.output, options.json, options.picture if drawn else None), out)
    return done.ended()
