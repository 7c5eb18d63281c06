"""`hicache size`: from a trace to a decision. How much host memory a server needs, what it buys,
what binds, in one report.

Takes the options of `hicache replay`, one value each; host memory is what it chooses. Does not
choose the points (see sizing/plan), run them (see sweeping/running), conclude (see deciding) or
draw the report (see html).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Self

from hicache.core.errors import CallerError

from ..deciding.prices import Prices, read_prices
from ..executors import base as executors
from ..replaying.options import ReplayOptions
from ..reporting.outputs import check_files
from ..sizing import study
from ..sizing.output import show
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ._options import add_workers, sizes_of
from ._replay_fleet import add_fleet
from ._replay_load import add_load
from ._replay_sizes import add_run, add_sizes
from ._replay_storage import add_storage

SUMMARY = "from a trace to a decision: how much memory, what it buys, what binds, one HTML report"
COMPILED = True
_OWN = ("output", "json", "points", "jobs", "executor", "sizes", "draws", "budget", "price")
_NOT_TAKEN = (
    *("json", "requests", "html", "plot", "why", "compare_eviction"),
    *("host_ratio", "host_pages", "host_bytes"),
)


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """sizes: bytes of host memory; None to choose them. draws: replays of each size. budget:
    nanoseconds."""

    output: str | None
    json: str | None
    points: str | None
    jobs: int | None
    executor: str
    sizes: tuple[int, ...] | None
    draws: int
    budget: int | None
    price: Prices | None
    replay: ReplayOptions

    @classmethod
    def read(cls, namespace: argparse.Namespace) -> Self:
        given = dict(vars(namespace))
        own = {name: given.pop(name) for name in _OWN}
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
        help="sizes of host memory, of all GPUs together (default: powers of two, from what adds "
        "hits to what brings nearly all)",
    )
    add(
        "--draws",
        type=read.between(1, 100),
        default=3,
        metavar="N",
        help="replays of each size, with arrivals that differ a little (seeds from --seed on): how "
        "far figures move by chance (default: %(default)s)",
    )
    add("-o", "--output", type=read.output, metavar="FILE", help="write the report (HTML) here")
    add(
        "--json",
        type=read.output,
        metavar="FILE",
        help="also write the document that the report is drawn from; - is stdout",
    )
    add(
        "--points",
        type=read.name,
        metavar="FILE",
        help="keep each point here when it is done (JSON lines), and do only what is missing",
    )
    add(
        "--budget",
        type=read.at_least(1, read.duration_ns),
        metavar="TIME",
        help="replay about as much of the trace as this time has room for, such as 120s; sets "
        "--sample, from the size of the trace alone",
    )
    add(
        "--price",
        type=read_prices,
        metavar="LIST",
        help="prices, for the value of more memory or GPUs, such as gpu=2.5/h,host=4/GB "
        "(docs/verdict.md)",
    )
    add_workers(parser)
    add_sizes(parser)
    add_storage(parser)
    add_load(parser)
    add_fleet(parser)


def run(options: Options, command: str) -> int:
    given = options.replay
    named = {"output": options.output, "json": options.json, "points": options.points}
    check_files(given, **named)
    if given.trace == "-":
        raise CallerError(
            "-: expected a file, which every worker reads, found standard input; write it to a file"
        )
    if given.mode != "timed":
        raise CallerError(
            "--mode: expected timed, since a size is judged by its times, found hits; for hits "
            "alone use hicache curve"
        )
    if given.sample is not None and options.budget is not None:
        raise CallerError("--budget: expected no --sample beside it, found one; give either")
    executors.load(options.executor)
    out = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    asked = study.Asked(
        options.sizes,
        None if options.budget is None else options.budget / 1e9,
        options.draws,
        options.executor,
        options.jobs or 0,
        options.points,
    )
    found = study.study(given, asked, command)
    show(found, options.price, command, out, options.output, options.json)
    return found.ended.ended()
