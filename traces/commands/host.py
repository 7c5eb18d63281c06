"""`hicache host`: replays a trace with several sizes of host memory and shows what each buys.

A table with bars, a sentence, and a picture. Takes the options of `hicache replay`; the list of
sizes takes the place of its host options. Does not replay (see traces/replaying) or draw (see
traces/sweeping).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ..formats.base import need_identity
from ..replaying.builtin import opened, story
from ..replaying.options import ReplayOptions
from ..replaying.settings import resolve
from ..reporting.head import head
from ..reporting.outputs import check_files, repeat_warnings, warn
from ..reporting.report import print_story
from ..sweeping import words
from ..sweeping.enough import recommended
from ..sweeping.picture import picture, print_points
from ..sweeping.points import Point, with_host
from ..sweeping.pool import points
from ..sweeping.svg import check_picture
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import write_json, write_whole
from ..terminal.progress import progress
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import console, print_sentences
from ..terminal.text import name as shown_name
from ..terminal.workers import cores
from ._options import sizes_of
from ._replay_fleet import NAMES as FLEET
from ._replay_load import add_load
from ._replay_sizes import add_run, add_sizes
from ._replay_storage import NAMES

SUMMARY = "show what host memory buys: hits and time to first token for several sizes"
COMPILED = True
SIZES = "0,64GB,128GB,256GB,512GB,1TB"
BUILTIN_SIZES = "0,16GB,32GB,64GB,96GB,128GB"  # all its tokens take 100 GB
_NOT_TAKEN = (
    *("json", "requests", "html", "plot", "why", "compare_eviction"),
    *("host_ratio", "host_pages", "host_bytes"),
    *NAMES,
    *FLEET,
)


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """sizes: bytes of host memory, ascending. jobs: None for one process for each core."""

    sizes: tuple[int, ...]
    output: str | None
    json: str | None
    jobs: int | None
    replay: ReplayOptions

    @classmethod
    def read(cls, namespace: argparse.Namespace) -> Self:
        given = vars(namespace)
        own = {name: given.pop(name) for name in ("sizes", "output", "json", "jobs")}
        if own["sizes"] is None:
            own["sizes"] = sizes_of(SIZES if given["trace"] is not None else BUILTIN_SIZES)
        given |= dict.fromkeys(_NOT_TAKEN)
        return cls(**own, replay=ReplayOptions(**given))


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "off")
    add = parser.add_argument
    add(
        "--host-bytes",
        dest="sizes",
        type=sizes_of,
        metavar="LIST",
        help=f"sizes of host memory, of all GPUs together (default: {SIZES}; without a "
        f"trace {BUILTIN_SIZES})",
    )
    add("-o", "--output", type=read.output, metavar="FILE", help="draw the picture (SVG) here")
    add("--json", type=read.output, metavar="FILE", help="also write the figures; - is stdout")
    add(
        "--jobs",
        type=read.between(1, 1024),
        metavar="N",
        help="sizes replayed at once, each in a process (default: one for each core)",
    )
    add_sizes(parser)
    add_load(parser)


def run(options: Options, command: str) -> int:
    given = options.replay
    check_files(given, output=options.output, json=options.json)
    check_picture(options.output)
    out = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    jobs = options.jobs or cores()
    if given.trace == "-":
        jobs = 1  # standard input can be read once
    replay, trace = opened(replace(given, check=given.check or "off"))
    need_identity(trace, "hicache host")
    settings, paged = resolve(with_host(replay, options.sizes[-1]), trace)
    if given.trace is None:
        print_story(story(trace, paged, settings.core, len(options.sizes)), out)
    warnings = warn(trace, settings)
    found: list[Point] = []
    complete = False
    jobs = min(jobs, len(options.sizes))
    with progress("replay", len(trace.jobs) * len(options.sizes)) as shown:
        try:
            # one by one: what is there when Ctrl-C comes is kept
            for point in points(replay, trace, options.sizes, jobs, shown):
                found.append(point)  # noqa: PERF402
            complete = True
        except KeyboardInterrupt:
            print_error(f"interrupted: {len(found)} of {len(options.sizes)} sizes are done")
    found.sort(key=lambda point: point.host_bytes)
    told = words.conclusions(trace, settings, found)
    with ignore_broken_pipe():
        if found:
            print_points(found, out)
        repeat_warnings(warnings, out)
        print_sentences("In words", told, out)
    if options.output and found:
        write_whole(options.output, [picture(Path(trace.path).name, settings, found)])
    if options.json:
        document = {
            **head(command, complete),
            "trace": {"path": trace.path, "requests": len(trace.jobs)},
            "config": settings.as_options(),
            "recommended_host_bytes": recommended(found),
            "points": [point.document() for point in found],
            "warnings": warnings,
            "conclusions": told,
        }
        write_json(options.json, document)
    named = (options.output if found else None, options.json)
    written = [shown_name(path) for path in named if path not in (None, "-")]
    if written:
        with ignore_broken_pipe():
            console(out).print(f"wrote {', '.join(written)}", markup=False)
    return 0 if complete else INTERRUPTED
