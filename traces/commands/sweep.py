"""`hicache sweep`: replays a trace at every point of a grid, and shows which points are best.

Takes the options of `hicache replay`, each with several values: commas separate them, and an option
may be given several times. An option whose one value may have commas (`--components full,swa`)
takes one value each time. `all` stands for every name that the option knows.
"""

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
_WITH_COMMAS = ", ".join(
    declared_figure.flag for declared_figure in of_replay() if declared_figure.row.commas
)
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
        return [
            *rows(cls),
            *(
                _as_list(declared_figure) if _varies(declared_figure) else declared_figure
                for declared_figure in of_replay()
            ),
        ]

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        base: dict[str, Any] = {}
        axes: dict[str, tuple[Value, ...]] = {}
        fixed: dict[str, tuple[str, ...]] = {}
        for declared_figure in of_replay():
            name, result = declared_figure.name, values.pop(declared_figure.name)
            if _varies(declared_figure) and result is not None:
                kept: dict[Any, Value] = {}
                for value in chain.from_iterable(result):
                    kept.setdefault(value.value, value)
                first, *more = kept.values()
                if all(isinstance(item, int | Fraction) for item in kept):  # ascending
                    first, *more = sorted(kept.values(), key=lambda value: value.value)
                fixed[name] = declared_figure.flag, first.text
                if more:
                    axes[name] = first, *more
                result = first.value
            elif _varies(declared_figure):
                result = declared_figure.default
            elif result != declared_figure.default and not declared_figure.row.positional:
                fixed[name] = (
                    (declared_figure.flag,)
                    if result is True
                    else (declared_figure.flag, str(result))
                )
            base[name] = result
        return cls(grid=Grid(ReplayOptions(**base), axes, fixed), **values)


def _varies(declared_figure: Declared) -> bool:
    """Whether the option may have several values."""
    return not (
        declared_figure.row.parse is None
        or declared_figure.row.positional
        or declared_figure.row.one_value
    )


def _as_list(declared_figure: Declared) -> Declared:
    shown = "" if declared_figure.default is None else f" (default: {declared_figure.default})"
    about = (
        declared_figure.row.help
        if isinstance(declared_figure.row.help, str)
        else declared_figure.row.help()
    )
    row = replace(
        declared_figure.row, parse=_listed(declared_figure), several=True, help=about + shown
    )
    return replace(declared_figure, default=None, row=row)


def _listed(declared_figure: Declared) -> Callable[[str], tuple[Value, ...]]:
    """A parser of a list of what the option reads."""
    parse = declared_figure.row.parse
    assert parse is not None

    def read(text: str) -> tuple[Value, ...]:
        if text == _ALL and isinstance(parse, Names):
            return tuple(Value(name, parse(name)) for name in parse.known())
        parts = [text] if declared_figure.row.commas else [part.strip() for part in text.split(",")]
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
        result = {
            **head(command, not done.code),
            **{name: header[name] for name in ("decisions", "trace", "base", "grid")},
            "points": outcomes,
            "left_out": too_large,
            "front": [result["label"] for result in table.front(outcomes)],
            "enough_host_bytes": enough,
            "warnings": warnings,
        }
        write_json(options.json, result)
    drawn = table.of_sizes(done.points) if options.picture else ""
    if options.picture and drawn:
        write_whole(options.picture, [drawn])
    print_written((options.output, options.json, options.picture if drawn else None), out)
    return done.ended()
