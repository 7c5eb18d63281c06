"""`hicache size`: from a trace to a decision. How much host memory a server needs, what it buys,
what binds, in one report.

Takes the options of `hicache replay`, one value each; host memory is what it chooses. With
`--host-only` it compares sizes of host memory and nothing else (see sizing/host_only). Does not
choose the points (see sizing/plan), run them (see sweeping/running), conclude (see deciding) or
draw the report (see html).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..deciding.prices import Prices, read_prices
from ..executors import base as executors
from ..replaying.options import HOST_SIZES
from ..reporting.outputs import check_files
from ..sizing import study
from ..sizing.host_only import show_host
from ..sizing.output import show
from ..terminal import options as read
from ..terminal.rows import add_rows, flag, option
from ._options import OfReplays, WorkerOptions, of_replay, sizes_of

SUMMARY = "from a trace to a decision: how much memory, what it buys, what binds, one HTML report"
GROUP = "plan"
COMPILED = True
_DRAWS = 3
_OF_A_STUDY = ("draws", "budget", "price", "points")


@dataclass(frozen=True)
class Options(WorkerOptions, OfReplays):
    """sizes: bytes of host memory; None to choose them. draws: replays of each size. budget:
    nanoseconds."""

    host_only: bool = option(
        "replay each size once at the load of the trace, and show what host memory buys: no search "
        "for the load that is served, and no other hardware",
        default=False,
    )
    sizes: tuple[int, ...] | None = option(
        "sizes of host memory, of all GPUs together (default: powers of two, from what adds hits "
        "to what brings nearly all; with --host-only 0 to 1TB)",
        sizes_of,
        "LIST",
        named="--host-bytes",
    )
    output: str | None = option(
        "write the report (HTML) here; with --host-only the picture (SVG)", *read.OUTPUT, short="-o"
    )
    json: str | None = option(
        "also write the document that the report is drawn from; - is stdout", *read.OUTPUT
    )
    budget: int | None = option(
        "replay about as much of the trace as this time has room for, such as 120s; sets --sample, "
        "from the size of the trace alone",
        read.at_least(1, read.duration_ns),
        "TIME",
    )
    price: Prices | None = option(
        "prices, for the value of more memory or GPUs, such as gpu=2.5/h,host=4/GB "
        "(docs/verdict.md)",
        read_prices,
        "LIST",
    )
    points: str | None = option(
        "keep each point here when it is done (JSON lines), and do only what is missing", *read.FILE
    )
    draws: int | None = option(
        "replays of each size, with arrivals that differ a little (seeds from --seed on): how far "
        f"figures move by chance (default: {_DRAWS})",
        read.between(1, 100),
        "N",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    add_rows(parser, of_replay(without=HOST_SIZES))


def run(options: Options, command: str) -> int:
    given = options.replay
    named = {"output": options.output, "json": options.json, "points": options.points}
    check_files(given, **named)
    if options.host_only:
        _check_host_only(options)
        files = options.output, options.json
        return show_host(given, options.sizes, options.jobs, command, *files)
    if given.trace == "-":
        raise CallerError(
            "-: expected a file, which every worker reads, found standard input; write it to a file"
        )
    if given.mode != "timed":
        raise CallerError(
            "--mode hits: a size is judged by its times; leave it out, or give --host-only for "
            "hits alone"
        )
    if given.sample is not None and options.budget is not None:
        raise CallerError("--budget and --sample do not go together; leave one out")
    executors.load(options.executor)
    out = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    asked = study.Asked(
        options.sizes,
        None if options.budget is None else options.budget / 1e9,
        options.draws or _DRAWS,
        options.executor,
        options.jobs or 0,
        options.points,
    )
    found = study.study(given, asked, command)
    show(found, options.price, command, out, options.output, options.json)
    return found.ended.ended()


def _check_host_only(options: Options) -> None:
    """Raises CallerError for an option that only a whole study reads."""
    used = [name for name in _OF_A_STUDY if getattr(options, name) is not None]
    used += ["executor"] * (options.executor != executors.LOCAL)
    if used:
        raise CallerError(
            f"{flag(used[0])}: --host-only replays each size once, on this machine, and does not "
            "read it; leave one of them out"
        )
