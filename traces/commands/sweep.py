"""`hicache sweep`: replays a trace at every point of a grid, and shows which points are best.

Takes the options of `hicache replay`, each with several values: commas separate them, and an option
may be given several times. An option whose one value may have commas (`--components full,swa`)
takes one value each time. `all` stands for every name that the option knows.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any, Self

from hicache.core.errors import CallerError

from ..curves import lru_curve
from ..replaying.config import resolve
from ..replaying.options import ReplayOptions
from ..reporting.warnings import repeat_warnings, warn
from ..results.record import head
from ..sweeping import table
from ..sweeping.points import Grid, How, Value, header_of, measured, opened_once, tasks_of
from ..terminal import options as read
from ..terminal.options import Names, Option, option, rows
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.streams import print_error
from ..terminal.tables import print_written
from ._options import WorkerOptions, of_replay

_ALL = "all"
_WITH_COMMAS = ", ".join(option.flag for option in of_replay() if option.commas)
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
    def declared(cls) -> list[Option]:
        """Every option of `hicache replay`; those that may vary are lists."""
        return [*rows(cls), *(_as_list(each) if _varies(each) else each for each in of_replay())]

    @classmethod
    def made(cls, values: dict[str, Any], texts: dict[str, str]) -> Self:
        base: dict[str, Any] = {}
        axes: dict[str, tuple[Value, ...]] = {}
        for declared in of_replay():
            name, result = declared.name, values.pop(declared.name)
            if _varies(declared) and result is not None:
                first, *more = _distinct(chain.from_iterable(result))
                if more:
                    axes[name] = first, *more
                texts[name], result = first.text, first.value
            elif _varies(declared):
                result = declared.default
            base[name] = result
        given = tuple((name, text) for name, text in texts.items() if name in base)
        return cls(grid=Grid(ReplayOptions(**base, texts=given), axes), **values)


def _varies(declared: Option) -> bool:
    """Whether the option may have several values."""
    return not (declared.parse is None or declared.positional or declared.one_value)


def _as_list(declared: Option) -> Option:
    parse = _listed(declared)
    return replace(declared, parse=parse, several=True, help=declared.about, default=None)


def _listed(declared: Option) -> Callable[[str], tuple[Value, ...]]:
    """A parser of a list of what the option reads."""
    parse = declared.parse
    assert parse is not None

    def read(text: str) -> tuple[Value, ...]:
        if text == _ALL and isinstance(parse, Names):
            return tuple(Value(name, parse(name)) for name in parse.known())
        parts = [text] if declared.commas else [part.strip() for part in text.split(",")]
        return tuple(Value(part, parse(part)) for part in parts)

    return read


def _distinct(values: Iterable[Value]) -> list[Value]:
    """Each value once; numbers ascend."""
    kept: dict[Any, Value] = {}
    for value in values:
        kept.setdefault(value.value, value)
    if all(isinstance(number, int | Fraction) for number in kept):
        return [kept[number] for number in sorted(kept)]
    return [*kept.values()]


def run(options: Options, command: str) -> int:
    grid = options.grid
    check_outputs(
        grid.base.inputs, output=options.output, json=options.json, picture=options.picture
    )
    table.check_picture(options.picture, "--picture")
    if options.picture is not None and not table.of_host_memory(grid):
        raise CallerError(
            "--picture: expected several --host-bytes of one server without storage, and one value "
            "of every other option; give such as --host-bytes 0,256GB,1TB"
        )
    options.check(grid.base)
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
