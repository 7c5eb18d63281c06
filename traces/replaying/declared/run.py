"""The options of a replay that say what is replayed, how, and what is written of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from invariants.watch import Level

from ...terminal.options import (
    COUNT_OR_0,
    OUTPUT,
    OptionRecord,
    at_least,
    choice,
    name,
    part,
    request_number,
)
from ...terminal.rows import option
from ..defaults import CHECKS, MODES, Mode
from .needs import Need
from .trace import TRACE_HELP, LimitOptions


@dataclass(frozen=True)
class ReplayedTrace(LimitOptions):
    """The trace of a replay; None for the built-in one."""

    HEADING = LimitOptions.HEADING

    trace: str | None = option(
        TRACE_HELP, name, "TRACE", positional=True, optional=True, common=True, file=str
    )
    sample: Fraction | None = option(
        "only this part of the trace, such as 0.25: whole sessions and groups with a common "
        "prefix, chosen by a hash, as a shorter trace of the same load (default: 1)",
        part,
        "PART",
        common=True,
        needs=(Need.TRACE,),
    )


@dataclass(frozen=True)
class RunOptions(OptionRecord):
    HEADING = "the run"

    mode: Mode = option(
        "timed: engine and virtual time; hits: one request at a time, no clock, exact counts",
        choice(MODES),
        default="timed",
        common=True,
        in_head=True,
    )
    check: Level | None = option(
        "check invariants after every operation, at intervals (sampled), or not (off) (default: "
        "sampled; every for the built-in workload; off where several replays are compared)",
        choice(CHECKS),
        common=True,
        one_value=True,
    )
    skip_too_large: bool = option(
        "leave out requests that the device cannot hold, and count them",
        default=False,
    )
    seed: int | None = option(
        "seed of what is random: arrivals that are drawn (--spread, --arrivals), sessions "
        "(--scale-sessions), and the jitter of simulated copies (at most 5 us), which changes the "
        "digest and rarely a printed figure (default: 0)",
        *COUNT_OR_0,
        needs=(Need.CHANCE,),
    )


@dataclass(frozen=True)
class OutputOptions(OptionRecord):
    """What `hicache replay` prints and writes; no option of a point of a sweep."""

    HEADING = "what is printed and written"

    verbose: bool = option(
        "print everything: turns, pools, tiers, replicas, parts of the times, checks",
        default=False,
        common=True,
        output=True,
        short="-v",
    )
    config: str | None = option(
        "read the options that are not given here from this file: TOML, such as "
        "`page-size = 64`, or the JSON of a replay, whose options it repeats",
        name,
        "FILE",
        output=True,
        file=str,
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout",
        *OUTPUT,
        common=True,
        output=True,
    )
    html: str | None = option(
        "also write a report as one HTML file that needs nothing else; - is stdout",
        *OUTPUT,
        common=True,
        output=True,
    )
    why: int | None = option(
        "only say why request N hit what it hit, and what it waited for; the first is 0",
        at_least(0, request_number),
        "N",
        common=True,
        output=True,
    )
    requests: str | None = option(
        "also write one line of JSON for each request: hits, why not more, times",
        *OUTPUT,
        output=True,
    )
    timeline: str | None = option(
        "also write what ran when, as Chrome trace events for ui.perfetto.dev; - is stdout",
        *OUTPUT,
        output=True,
        needs=(Need.TIMED,),
    )
