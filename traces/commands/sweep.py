"""`hicache sweep`: replays a trace at every point of a grid, and shows which points are best.

Takes the options of `hicache replay`, each with several values.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, Self

from hicache.core.errors import CallerError

from .. import executors
from ..curves import lru_curve
from ..replaying.builtin import with_defaults
from ..replaying.config import resolve
from ..replaying.options import ReplayOptions
from ..reporting.outputs import check_files, repeat_warnings, warn
from ..results.record import Result, head, record_of
from ..sweeping.grid import Faults, Grid, Point, header_of, resolved, tasks_of
from ..sweeping.outcome import (
    best,
    enough_bytes,
    front,
    of_host_memory,
    outcome_of,
    print_best,
    print_outcomes,
)
from ..sweeping.picture import check_picture, of_sizes
from ..sweeping.work import How, measured, opened_once
from ..terminal import options as read
from ..terminal.options import Declared, flag, option, rows
from ..terminal.output import write_json, write_whole
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import print_written
from ._grid_options import ALL, WITH_COMMAS, grid_of
from ._grid_options import declared as listed
from ._options import WorkerOptions

COMPILED = True


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
        return [*rows(cls), *listed()]

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        grid = grid_of(values)
        return cls(grid=grid, **values)


_SEVERAL = ", ".join(map(flag, WITH_COMMAS))
EPILOG = (
    "Every option of hicache replay with a value takes several here, separated by commas: "
    f"--host-ratio 0,1,2. {ALL} stands for every name that an option knows: --write-policy {ALL}. "
    f"Options may be repeated; {_SEVERAL} must be, since one value of theirs may have commas."
)


def run(options: Options, command: str) -> int:
    grid = options.grid
    check_files(grid.base, output=options.output, json=options.json, picture=options.picture)
    check_picture(options.picture, "--picture")
    if options.picture is not None and not of_host_memory(grid):
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
    grid = replace(grid, base=replace(_with_sizes(grid), check=grid.base.check or "off"))
    points = _points(grid)
    trace = opened_once(points[0].options)
    settings, paged = resolve(points[0].options, trace)
    warnings, header = warn(trace, settings), header_of(grid, command)
    tasks = tasks_of(points, grid.fixed, header["trace"]["sha256"])
    how = How(options.executor, options.jobs or 0, options.output, "sweep")
    done = measured(tasks, how, header, len(trace.jobs))
    outcomes = [outcome_of(point) for point in done.points]
    enough = None
    if of_host_memory(grid) and trace.identity and not grid.base.exclusive:
        enough = enough_bytes(lru_curve(paged), settings)
    with ignore_broken_pipe():
        print_outcomes(outcomes, grid.axes, len(tasks), out)
        repeat_warnings(warnings, out)
        if done.points:
            print_best(done.points, outcomes, enough, out)
    if options.json:
        found = {
            **head(command, not done.code),
            **{name: header[name] for name in ("decisions", "trace", "base", "grid")},
            "points": [one.document() for one in outcomes],
            "best": {name: one.label for name, one in best(outcomes).items()},
            "front": [one.label for one in front(outcomes)],
            "enough_host_bytes": enough,
            "warnings": warnings,
        }
        write_json(options.json, found)
    drawn = options.picture and _picture(done.points)
    if options.picture and drawn:
        write_whole(options.picture, [drawn])
    print_written((options.output, options.json, options.picture if drawn else None), out)
    return done.ended()


def _picture(points: Any) -> str:
    """Of sizes of host memory; empty without any of a trace that says which prompts begin alike."""
    found = [(point["point"]["host_bytes"], record_of(Result, point)) for point in points]
    known = [(size, one) for size, one in found if one.trace.identity]
    return of_sizes(sorted(known, key=lambda one: one[0])) if known else ""


def _with_sizes(grid: Grid) -> ReplayOptions:
    """The options of all points; without a trace, with the sizes of the built-in workload."""
    if grid.base.trace is not None:
        return grid.base
    varied = {axis.name: axis.values[0].value for axis in grid.axes}
    sized = with_defaults(replace(grid.base, **varied))
    return replace(sized, **{name: getattr(grid.base, name) for name in varied})


def _points(grid: Grid) -> list[Point]:
    """The points to run. All that is wrong is told, a line each."""
    try:
        points = resolved(grid, opened_once)
    except Faults as faults:
        for line in faults.lines[:-1]:
            print_error(line)
        raise CallerError(faults.lines[-1]) from None
    if len(points) < len(grid):
        print_error(
            f"{len(grid)} combinations are {len(points)} different points: an option that a point "
            "does not read is left out there"
        )
    return points
