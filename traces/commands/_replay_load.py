"""The options of `hicache replay` for the load and its limits. Only names, parsers and help; see
docs/load.md for what they mean."""

from __future__ import annotations

import argparse

from hicache.core import registry

from ..loads.base import LOADS, Arrivals, load
from ..replaying.load.options import ThinkTime
from ..replaying.load.slo import NAMES as LIMITS
from ..replaying.load.slo import Slo
from ..terminal import options as read


def add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("load (timed mode; docs/load.md)").add_argument
    add(
        "--slo",
        type=_slo,
        metavar="LIST",
        help="limits that a request must keep to count for goodput, such as ttft=2s,tpot=50ms; "
        "itl (p99 of the times between its tokens) and e2e (until its last token), too",
    )
    add(
        "--arrivals",
        type=_arrivals,
        metavar="MODEL[:NAME=VALUE,...]",
        help=f"when requests arrive: {_described()} (default: recorded)",
    )
    add(
        "--request-rate",
        type=read.positive_ratio,
        metavar="N",
        help="requests per second that arrive on average, of those that wait for no other "
        "(default: that of the trace)",
    )
    add(
        "--concurrency",
        type=read.at_least(1),
        metavar="N",
        help="a closed loop: N requests are in flight, and the next one of the trace starts when "
        "one ends; arrival times are not read",
    )
    add(
        "--closed-loop",
        action="store_true",
        default=None,
        help="a turn of a session starts when the turn before it has ended and its think time has "
        "passed; where the trace names no sessions, a prompt that extends an earlier prompt is "
        "its next turn",
    )
    add(
        "--think-time",
        type=_think_time,
        metavar="TIME",
        help="between the end of a turn and the next one: a time such as 2s, none, or recorded: "
        "what the trace has (default: recorded)",
    )


def _described() -> str:
    found = []
    for name in registry.names(LOADS):
        model = load(name)
        given = ",".join(
            f"{key}={one.default:g}{'s' * one.is_time}" for key, one in model.PARAMETERS.items()
        )
        found.append(f"{name}{':' * bool(given)}{given}: {model.SUMMARY}")
    return "; ".join(found)


def _slo(text: str) -> Slo:
    """Reads `ttft=2s,tpot=50ms`."""
    limits: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in LIMITS or f"{name}_ns" in limits:
            raise argparse.ArgumentTypeError(
                f"expected limits such as ttft=2s,tpot=50ms, each of {', '.join(LIMITS)} at most "
                f"once, found {text!r}"
            )
        limit = read.duration_ns(value)
        if not limit:
            raise argparse.ArgumentTypeError(f"{name}: expected a time above 0, found {value!r}")
        limits[f"{name}_ns"] = limit
    return Slo(**limits)


def _arrivals(text: str) -> Arrivals:
    """Reads `gamma:cv=4`."""
    name, _, given = text.partition(":")
    name = read.entry(LOADS)(name)
    known = load(name).PARAMETERS
    found: dict[str, float] = {}
    for part in given.split(",") if given else ():
        key, equals, value = part.strip().partition("=")
        if not equals or key not in known or key in found:
            expected = ", ".join(known) or "no parameter"
            raise argparse.ArgumentTypeError(
                f"{name}: expected {expected}, each at most once and with =, found {part!r}"
            )
        if known[key].is_time:
            found[key] = read.duration_ns(value) / 1e9
        else:
            found[key] = float(read.ratio(value))
    return Arrivals(name.replace("-", "_"), tuple(sorted(found.items())))


def _think_time(text: str) -> ThinkTime:
    if text == "recorded":
        return ThinkTime(None)
    return ThinkTime(0 if text == "none" else read.duration_ns(text))
