"""The options of a replay for the load and its limits; see docs/load.md for what they mean."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from fractions import Fraction

from ...terminal import options as read
from ...terminal.options import COUNT, OptionRecord, duration_ns, positive_ratio
from ...terminal.rows import option
from ..load import MODELS, Arrivals, Slo, ThinkTime
from ..load import NAMES as LIMITS
from ..sessions import MOST
from .needs import Need


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
        limit = duration_ns(value)
        if not limit:
            raise argparse.ArgumentTypeError(f"{name}: expected a time above 0, found {value!r}")
        limits[f"{name}_ns"] = limit
    return Slo(**limits)


def _arrivals(text: str) -> Arrivals:
    """Reads `gamma:cv=4`."""
    name, _, given = text.partition(":")
    name = read.choice([*MODELS])(name)
    known = MODELS[name].parameters
    found: dict[str, float] = {}
    for part in given.split(",") if given else ():
        key, equals, value = part.strip().partition("=")
        if not equals or key not in known or key in found:
            expected = ", ".join(known) or "no parameter"
            raise argparse.ArgumentTypeError(
                f"{name}: expected {expected}, each at most once and with =, found {part!r}"
            )
        if known[key].is_time:
            found[key] = duration_ns(value) / 1e9
        else:
            found[key] = float(read.ratio(value))
    return Arrivals(name, tuple(sorted(found.items())))


def _described() -> str:
    found = []
    for name, model in MODELS.items():
        given = ",".join(
            f"{key}={one.default:g}{'s' * one.is_time}" for key, one in model.parameters.items()
        )
        found.append(f"{name}{':' * bool(given)}{given}: {model.summary}")
    return f"when requests arrive: {'; '.join(found)} (default: recorded)"


def _think_time(text: str) -> ThinkTime:
    if text == "recorded":
        return ThinkTime(None)
    return ThinkTime(0 if text == "none" else duration_ns(text))


def _scale(text: str) -> Fraction:
    value = positive_ratio(text)
    if value > MOST:
        raise argparse.ArgumentTypeError(f"expected at most {MOST}, found {text!r}")
    return value


@dataclass(frozen=True)
class LoadOptions(OptionRecord):
    """request_rate: requests per second. spread: None for sessions that begin together alone."""

    HEADING = "load (timed mode; docs/load.md)"

    speed: Fraction | None = option(
        "play the trace's times X times as fast, arrivals and delays (default: 1)",
        positive_ratio,
        "X",
        common=True,
        needs=(Need.TIMED, Need.RATE),
    )
    scale_sessions: Fraction | None = option(
        "X times the sessions of the trace, with their think times: below 1 a random part of them, "
        "above 1 all of them and copies with other contents and other starts (--seed; default: 1)",
        _scale,
        "X",
        common=True,
        needs=(Need.TRACE, Need.RATE, Need.ARRIVALS),
    )
    concurrency: int | None = option(
        "a closed loop: N requests are in flight, and the next one of the trace starts when one "
        "ends; arrival times are not read",
        *COUNT,
        common=True,
        needs=(Need.TIMED,),
    )
    slo: Slo | None = option(
        "limits that a request must keep to count for goodput, such as ttft=2s,tpot=50ms; itl (p99 "
        "of the times between its tokens) and e2e (until its last token), too",
        _slo,
        "LIST",
        common=True,
        commas=True,
        needs=(Need.TIMED,),
        in_head=True,
        tried="ttft=2s",
    )
    arrivals: Arrivals | None = option(
        _described,
        _arrivals,
        "MODEL[:NAME=VALUE,...]",
        commas=True,
        needs=(Need.TIMED, Need.ARRIVALS),
        tried="poisson",
    )
    request_rate: Fraction | None = option(
        "mean arrival rate of first turns, in requests per second (default: that of the trace)",
        positive_ratio,
        "N",
        needs=(Need.TIMED, Need.ARRIVALS),
    )
    spread: bool | None = option(
        "requests of one instant arrive evenly until the next instant, for traces with a coarse "
        "clock; with a --seed above 0, at random times until then (default: only sessions that all "
        "begin at one instant, over the length of the longest)",
        needs=(Need.TIMED, Need.ARRIVALS, Need.RECORDED),
    )
    closed_loop: bool | None = option(
        "a turn of a session starts when the turn before it has ended and its think time has "
        "passed; where the trace names no sessions, a prompt that extends an earlier prompt is its "
        "next turn",
        needs=(Need.TIMED,),
    )
    think_time: ThinkTime | None = option(
        "between the end of a turn and the next one: a time such as 2s, none, or recorded: what "
        "the trace has (default: recorded)",
        _think_time,
        "TIME",
        needs=(Need.TIMED,),
    )
