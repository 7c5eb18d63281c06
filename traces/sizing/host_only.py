"""What host memory alone buys: one replay of the trace as it is for each size of host memory.

A table with bars, a sentence, and a picture. Does not search loads or compare anything else (see
study), replay (see sweeping/points) or draw (see sweeping/picture).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hicache.core.errors import CallerError

from ..formats.base import need_identity
from ..replaying.builtin import opened, story
from ..replaying.declared.fleet import FleetOptions
from ..replaying.declared.storage import StorageOptions
from ..replaying.options import ReplayOptions
from ..replaying.settings import resolve
from ..reporting.head import head
from ..reporting.outputs import repeat_warnings, warn
from ..reporting.report import print_story
from ..sweeping import words
from ..sweeping.picture import picture, print_points
from ..sweeping.points import Point, points, with_host
from ..sweeping.svg import check_picture
from ..sweeping.words import recommended
from ..terminal.output import write_json, write_whole
from ..terminal.progress import progress
from ..terminal.rows import rows
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import print_sentences, print_written
from ..terminal.workers import cores

_GB = 10**9
SIZES = tuple(size * _GB for size in (0, 64, 128, 256, 512, 1000))
BUILTIN_SIZES = tuple(size * _GB for size in (0, 16, 32, 64, 96, 128))  # all its tokens: 100 GB
_NOT_READ = (*rows(StorageOptions), *rows(FleetOptions))


def show_host(
    given: ReplayOptions,
    sizes: Sequence[int] | None,
    jobs: int | None,
    command: str,
    svg: str | None,
    json: str | None,
) -> int:
    """Replays, prints and writes everything; returns the exit code. sizes, jobs: None to choose."""
    for one in _NOT_READ:
        if getattr(given, one.name) is not None:
            raise CallerError(
                f"{one.flag}: --host-only compares sizes of host memory alone; leave out either"
            )
    check_picture(svg)
    out = sys.stderr if "-" in (svg, json) else sys.stdout
    sizes = sizes or (BUILTIN_SIZES if given.trace is None else SIZES)
    replay, trace = opened(replace(given, check=given.check or "off"))
    need_identity(trace, "hicache size --host-only")
    settings, paged = resolve(with_host(replay, sizes[-1]), trace)
    if given.trace is None:
        print_story(story(trace, paged, settings.core, len(sizes)), out)
    warnings = warn(trace, settings)
    found: list[Point] = []
    complete = False
    # standard input can be read once
    jobs = 1 if given.trace == "-" else min(jobs or cores(), len(sizes))
    with progress("replay", len(trace.jobs) * len(sizes)) as shown:
        try:
            # one by one: what is there when Ctrl-C comes is kept
            for point in points(replay, trace, sizes, jobs, shown):
                found.append(point)  # noqa: PERF402
            complete = True
        except KeyboardInterrupt:
            print_error(f"interrupted: {len(found)} of {len(sizes)} sizes are done")
    found.sort(key=lambda point: point.host_bytes)
    told = words.conclusions(trace, settings, found)
    with ignore_broken_pipe():
        if found:
            print_points(found, out)
        repeat_warnings(warnings, out)
        print_sentences("In words", told, out)
    if svg and found:
        write_whole(svg, [picture(Path(trace.path).name, settings, found)])
    if json:
        document = {
            **head(command, complete),
            "trace": {"path": trace.path, "requests": len(trace.jobs)},
            "config": settings.as_options(),
            "recommended_host_bytes": recommended(found),
            "points": [point.document() for point in found],
            "warnings": warnings,
            "conclusions": told,
        }
        write_json(json, document)
    print_written((svg if found else None, json), out)
    return 0 if complete else INTERRUPTED
