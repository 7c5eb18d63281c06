"""What host memory bought, in sentences: how much is enough, and what it does to latency.

The rules are simple, and each sentence states figures of the table. Does not measure; see points.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..formats.base import Trace
from ..replaying.settings import Settings
from ..reporting.amounts import gigabytes
from ..reporting.conclusions import left_out
from ..reporting.overload import Load, slower
from ..terminal.tables import percent
from .points import Point

ENOUGH = 0.9  # of the gain of the best size
LITTLE = 0.005  # of the prompt tokens


def conclusions(trace: Trace, settings: Settings, points: Sequence[Point]) -> list[str]:
    """points: in order of size. At least two are needed to compare."""
    return [*left_out(trace.jobs, settings.skipped), *_compared(settings, points)]


def _compared(settings: Settings, points: Sequence[Point]) -> list[str]:
    if not points:
        return ["No size was replayed to its end, so there is nothing to compare."]
    if len(points) < 2:
        return ["One size alone does not show what more host memory buys; replay at least two."]
    told = [_gain(points), *_load(settings, points)]
    last = points[-1]
    told.append(
        f"No cache can hit more than {_percent(last.ceiling_rate)} of the prompt tokens of this "
        "trace; the rest is seen for the first time."
    )
    return told


def _gain(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    best = max(points, key=lambda point: point.hit_rate)
    gain = best.hit_rate - first.hit_rate
    span = f"{gigabytes(first.host_bytes)} to {gigabytes(last.host_bytes)}"
    if gain < LITTLE:
        return (
            f"From {span} of host memory the hit rate stays within {LITTLE * 100:g} points of "
            f"{_percent(first.hit_rate)}: more of it buys hardly anything here."
        )
    enough = next(point for point in points if point.hit_rate >= first.hit_rate + ENOUGH * gain)
    base = "" if not first.host_bytes else f", compared with {gigabytes(first.host_bytes)},"
    told = (
        f"{gigabytes(enough.host_bytes)} of host memory{base} raise the hit rate from "
        f"{_percent(first.hit_rate)} to {_percent(enough.hit_rate)}{_ttft(first, enough)}"
    )
    if best.hit_rate > best.ceiling_rate - LITTLE:
        return f"{told}, nearly all that this trace can hit."
    if enough is last:
        return f"{told}; it is the largest size tried, so more may help further."
    more = last.hit_rate - enough.hit_rate
    return f"{told}; {gigabytes(last.host_bytes)} add {max(0.0, more) * 100:.1f} points to that."


def _ttft(first: Point, enough: Point) -> str:
    if first.ttft_s is None or enough.ttft_s is None:
        return ""
    before, after = first.ttft_s.p90, enough.ttft_s.p90
    if f"{before:.2f}" == f"{after:.2f}":
        return f" and leave the p90 time to first token at {before:,.2f} s"
    verb = "cut" if after < before else "raise"
    return f" and {verb} the p90 time to first token from {before:,.2f} to {after:,.2f} s"


def _load(settings: Settings, points: Sequence[Point]) -> list[str]:
    busy = [point for point in points if point.overloaded and point.offered]
    if not busy:
        return []
    most = max(point.offered or 0.0 for point in busy)
    speed = slower(Load(most, 1.0), settings.speed)
    which = "every size" if len(busy) == len(points) else f"{len(busy)} of {len(points)} sizes"
    return [
        f"With {which} the trace offers more than the machine can do (up to {most:.1f} x), so the "
        f"times to first token are mostly queueing; try --speed {speed}."
    ]


def _percent(rate: float) -> str:
    return percent(rate, 1)
