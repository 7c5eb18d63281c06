"""`hicache sweep`: replays a trace at every point of a grid, and shows which points are best.

Takes the options of `hicache replay`, each with several values. Does not combine them (see
sweeping/grid), replay (see sweeping/work) or keep what is done (see sweeping/running).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from hicache.core.errors import CallerError

from ..executors import base as executors
from ..outside import entries
from ..replaying.builtin import with_defaults
from ..replaying.options import ReplayOptions
from ..replaying.settings import resolve
from ..reporting.head import head
from ..reporting.outputs import check_files, repeat_warnings, warn
from ..sweeping import grid as grids
from ..sweeping import running
from ..sweeping.grid import Grid, header_of
from ..sweeping.identity import decisions, trace_digest
from ..sweeping.outcome import (
    Outcome,
    best_document,
    conclusions,
    front,
    outcome_of,
    print_outcomes,
    tell_lines,
)
from ..sweeping.picture import check_grid, of_host_memory, picture, print_sizes, sizes_of
from ..sweeping.work import PointWork, Task, opened_once
from ..terminal import options as read
from ..terminal.output import write_json, write_whole
from ..terminal.rows import Declared, flag, option, rows
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences, print_written
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
    follow: bool = option(
        "also find out why tokens were lost and when bytes moved, for reports (a quarter "
        "more time)",
        default=False,
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
    check_grid(options.picture, grid)
    if grid.base.trace == "-":
        raise CallerError(
            "-: expected a file, which every worker reads, found standard input; write it to a file"
        )
    executors.load(options.executor)
    out = sys.stderr if "-" in (options.json, options.picture) else sys.stdout
    grid = replace(grid, base=replace(_with_sizes(grid), check=grid.base.check or "off"))
    tasks, merged, warnings = _tasks(grid, options.follow)
    work = partial(PointWork, trace_digest(grid.base.trace), decisions(), entries.given())
    how = running.How(options.executor, options.jobs or 0, options.output, "sweep")
    requests = len(opened_once(tasks[0].options).jobs)
    done = running.measured(work, tasks, how, header_of(grid, command), requests)
    outcomes = [outcome_of(point) for point in done.points]
    sizes = sizes_of(done.points) if of_host_memory(grid) else []
    told = [*merged, *conclusions(outcomes)]
    with ignore_broken_pipe():
        title = f"{len(done.points)} of {len(tasks)} points, best first"
        if sizes:
            print_sizes(sizes, out)
        else:
            print_outcomes(title, outcomes, out, grid.axes)
        repeat_warnings(warnings, out)
        print_sentences("In words", told, out)
    if options.json:
        write_json(options.json, _document(command, done.code, grid, outcomes, warnings, told))
    if options.picture and sizes:
        write_whole(options.picture, [picture(sizes)])
    print_written((options.output, options.json, options.picture if sizes else None), out)
    return done.ended()


def _with_sizes(grid: Grid) -> ReplayOptions:
    """The options of all points; without a trace, with the sizes of the built-in workload."""
    if grid.base.trace is not None:
        return grid.base
    varied = {axis.name: axis.values[0].value for axis in grid.axes}
    sized = with_defaults(replace(grid.base, **varied))
    return replace(sized, **{name: getattr(grid.base, name) for name in varied})


def _tasks(grid: Grid, follow: bool) -> tuple[list[Task], list[str], list[str]]:
    """The points to run; what became of the others in words; warnings about the trace."""
    try:
        points = grids.resolved(grid, opened_once)
    except grids.Faults as faults:
        tell_lines(faults.lines)
        raise CallerError(faults.lines[-1]) from None
    digest = trace_digest(grid.base.trace)
    followed = range(len(points)) if follow else ()
    tasks = grids.tasks_of(points, grid.fixed, digest, followed)
    merged = []
    if len(points) < len(grid):
        merged.append(
            f"{len(grid)} combinations are {len(points)} different points: an option that a point "
            "does not read is left out there."
        )
    trace = opened_once(points[0].options)
    return tasks, merged, warn(trace, resolve(points[0].options, trace)[0])


def _document(
    command: str,
    code: int,
    grid: Grid,
    outcomes: Sequence[Outcome],
    warnings: list[str],
    told: list[str],
) -> dict[str, object]:
    header = header_of(grid, command)
    return {
        **head(command, not code),
        **{name: header[name] for name in ("decisions", "trace", "base", "grid")},
        "points": [one.document() for one in outcomes],
        "best": best_document(outcomes),
        "front": [one.label for one in front(outcomes)],
        "warnings": warnings,
        "conclusions": told,
    }
