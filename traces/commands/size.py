"""`hicache size`: the cheapest machine that serves the whole trace within limits (`--slo`), in one
report. Takes the options of `hicache replay`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from hicache.core.errors import CallerError
from sim.hardware import profile

from .. import executors
from ..replaying.options import HOST_SIZES, OPTIONS, ReplayOptions
from ..reporting.outputs import check_files
from ..sizing.answer import show
from ..sizing.candidates import ATTAIN, MOST_GPUS, Asked, Candidate
from ..sizing.decision import decision
from ..sizing.prices import Prices, read_prices
from ..sweeping.work import How
from ..terminal import options as read
from ..terminal.options import Declared, option, rows
from ._options import OfReplays, WorkerOptions, of_replay, sizes_of

COMPILED = True
_CHOSEN: tuple[str, ...] = (
    "hardware",
    "tp",
    "pp",
    "replicas",
)  # options of a replay that may have several values
_MOST_VALUES = 16


def _several(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """A parser of a list of what `parse` reads, each value once."""

    def read(text: str) -> tuple[Any, ...]:
        values = tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))
        if len(values) > _MOST_VALUES:
            raise ValueError(f"expected at most {_MOST_VALUES} values, found {len(values)}")
        return values

    return read


def _machine(text: str) -> Candidate:
    """A machine such as 2xh100,tp=2,host=512GB. Raises ValueError for another text."""
    first, *rest = text.split(",")
    match = re.fullmatch(r"(?:(\d{1,3})x)?([A-Za-z][\w.-]*)", first.strip(), re.ASCII)
    given = dict(part.strip().partition("=")[::2] for part in rest)
    if not match or not {*given} <= {"tp", "pp", "host"} or len(given) < len(rest):
        raise ValueError(f"expected a machine such as {_TODAY}, found {text!r}")
    gpus = int(match[1] or 1)
    tp, pp = (read.at_least(1)(given.get(name, "1")) for name in ("tp", "pp"))
    hardware = read.choice(profile.names())(match[2])
    if not gpus or gpus % (tp * pp):
        ranks = "tp x pp" if pp > 1 else "tp"
        raise ValueError(f"expected a multiple of {tp * pp} GPUs ({ranks}), found {gpus}")
    host = read.byte_size(given.get("host", "0"))
    return Candidate(hardware, tp, gpus // (tp * pp), host, pp=pp)


def _part(text: str) -> Fraction:
    try:
        part = Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        part = Fraction(0)
    if not 0 < part < 1 or len(text) > _MOST_DIGITS:
        raise ValueError(f"expected a part of the requests such as 0.9 or 95%, found {text!r}")
    return part


_HARDWARE = next(one.row.parse for one in OPTIONS if one.name == "hardware")
_TODAY = "2xh100,tp=2,host=512GB"
EPILOG = (
    "Example: `hicache size trace.jsonl --slo ttft=2s,tpot=50ms -o report.html` says which machine "
    "to buy. docs/sizing.md has the rules."
)
_MOST_DIGITS = 10


@dataclass(frozen=True)
class Options(WorkerOptions, OfReplays):
    """sizes: bytes of host memory; None to choose them. draws: replays of the answer. budget:
    nanoseconds."""

    attain: Fraction | None = option(
        f"the part of the requests that must keep every limit (default: {float(ATTAIN):g})",
        _part,
        "PART",
    )
    most_gpus: int | None = option(
        f"accelerators of a machine at most (default: {MOST_GPUS})",
        read.between(1, 64),
        "N",
    )
    today: Candidate | None = option(
        f"the machine that you have, such as {_TODAY}; the answer says what it lacks",
        _machine,
        "MACHINE",
    )
    hardware: tuple[str, ...] | None = option(
        "accelerators to choose from (default: those with a price)",
        _several(_HARDWARE),  # type: ignore[arg-type]
        "LIST",
        common=True,
    )
    tp: tuple[int, ...] | None = option(
        "accelerators that share the model (default: powers of two)",
        _several(read.at_least(1)),
        "LIST",
        common=True,
    )
    pp: tuple[int, ...] | None = option(
        "pipeline stages that share the layers, each on --tp accelerators (default: 1)",
        _several(read.at_least(1)),
        "LIST",
    )
    replicas: tuple[int, ...] | None = option(
        "replicas behind a router, each with the device and the host memory of the other options "
        "(default: up to --most-gpus)",
        _several(read.at_least(1)),
        "LIST",
    )
    sizes: tuple[int, ...] | None = option(
        "sizes of host memory of a replica, of all its GPUs together (default: powers of two, from "
        "what adds hits to what brings nearly all)",
        sizes_of,
        "LIST",
        named="--host-bytes",
    )
    output: str | None = option("write the report (HTML) here", *read.OUTPUT, short="-o")
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
        "prices, such as gpu=2.5/h,host=4/GB or h100=3.2/h,b200=6/h (docs/sizing.md; default: list "
        "prices)",
        lambda text: read_prices(text, profile.names()),
        "LIST",
    )
    points: str | None = option(
        "keep each point here when it is done (JSON lines), and do only what is missing", *read.FILE
    )
    draws: int | None = option(
        "replays of the answer, with arrivals that differ a little, seeds from --seed on (default: "
        "1; how far chance moves figures is also told without others)",
        read.between(1, 100),
        "N",
    )

    @classmethod
    def declared(cls) -> list[Declared]:
        return [*rows(cls), *of_replay(without=(*HOST_SIZES, *_CHOSEN))]

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """The replay has the first value of each list."""
        own = {one.name: values.pop(one.name) for one in rows(cls)}
        for one in OPTIONS:
            if one.name in _CHOSEN:
                values[one.name] = own[one.name][0] if own[one.name] else one.default
        return cls(**own, replay=ReplayOptions(**values))


def run(options: Options, command: str) -> int:
    given = options.replay
    named = {"output": options.output, "json": options.json, "points": options.points}
    check_files(given, **named)
    if given.slo is None:
        raise CallerError(
            "--slo: expected the limits that requests must keep, found none; give them, such as "
            "--slo ttft=2s,tpot=50ms"
        )
    if given.trace == "-":
        raise CallerError(
            "-: expected a file, which every worker reads, found standard input; write it to a file"
        )
    if given.mode != "timed":
        raise CallerError(
            "--mode hits: a machine is judged by its times; leave it out, or take hicache sweep"
        )
    if given.sample is not None and options.budget is not None:
        raise CallerError("--budget and --sample do not go together; leave one out")
    executors.check(options.executor)
    asked = Asked(
        *(options.hardware, options.tp, options.pp, options.replicas, options.sizes),
        most_gpus=options.most_gpus or MOST_GPUS,
        prices=options.price,
        today=options.today,
        attain=options.attain or ATTAIN,
        draws=options.draws or 1,
        budget_s=None if options.budget is None else options.budget / 1e9,
    )
    out = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    how = How(options.executor, options.jobs or 0, options.points, "size")
    found = decision(given, asked, how, command)
    if found.ended.error is not None and not found.replays:
        raise found.ended.error  # a fault of every replay: there is nothing to show
    show(found, command, out, options.output, options.json)
    return found.ended.ended()
