"""What host memory bought, in sentences: how much is enough, and what it does to latency.

Enough brings nine tenths of what host memory could add: the distance from the hits of the device to
the ceiling of the trace, so that the answer does not depend on the sizes that were tried. Only
where the hits stop growing short of that, the best hits take the place of the ceiling. Between two
sizes the hits are taken to grow with the logarithm of the size, and linearly from no host memory to
the first size. Each sentence states figures of the table. Does not measure (see points).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2, log10

from ..expected.words import together
from ..formats.base import Trace
from ..replaying.settings import Settings
from ..reporting.amounts import gigabytes
from ..reporting.conclusions import NOTHING_REPEATS, left_out, scaled
from ..reporting.overload import Load, eased
from ..terminal.tables import percent
from .points import Point, machine

ENOUGH = 0.9  # of what host memory could add
LITTLE = 0.005  # of the prompt tokens
_DIGITS = 2  # of a size that was interpolated


def recommended(points: Sequence[Point]) -> int | None:
    """Bytes, to two digits; None if the sizes do not show it. points: in order of size.

    It is the smallest size that was tried if already that one is enough.
    """
    if len(points) < 2 or max(point.hit_rate for point in points) - base_rate(points) < LITTLE:
        return None
    place = first_enough(points)
    if place is None:
        return None
    upper = points[place]
    if not place:
        return upper.host_bytes
    lower = points[place - 1]
    part = (wanted_rate(points) - lower.hit_rate) / (upper.hit_rate - lower.hit_rate)
    if lower.host_bytes:
        size = lower.host_bytes * (upper.host_bytes / lower.host_bytes) ** part
    else:
        size = upper.host_bytes * part
    return round(size, _DIGITS - 1 - floor(log10(size))) if size >= 1 else 1


def first_enough(points: Sequence[Point]) -> int | None:
    """The place of the smallest size tried that is enough."""
    wanted = wanted_rate(points)
    return next((at for at, point in enumerate(points) if point.hit_rate >= wanted), None)


def wanted_rate(points: Sequence[Point]) -> float:
    """The hit rate that is enough."""
    base, best = base_rate(points), max(point.hit_rate for point in points)
    wanted = base + ENOUGH * (points[-1].ceiling_rate - base)
    if best < wanted and not still_grows(points):
        return base + ENOUGH * (best - base)
    return wanted


def base_rate(points: Sequence[Point]) -> float:
    """The hit rate without host memory; hits of the device do not depend on the host."""
    first = points[0]
    return first.device_hit_rate if first.host_bytes else first.hit_rate


def still_grows(points: Sequence[Point]) -> bool:
    """Whether twice the largest size would add more than a little, judged by the last step."""
    before, last = points[-2:]
    doublings = log2(last.host_bytes / before.host_bytes) if before.host_bytes else 1.0
    return last.hit_rate - before.hit_rate >= LITTLE * doublings


def conclusions(trace: Trace, settings: Settings, points: Sequence[Point]) -> list[str]:
    """points: in order of size. At least two are needed to compare."""
    errors = together(point.expected_error for point in points)
    left = left_out(trace.jobs, settings)
    return [*left, *scaled(trace), *_compared(settings, points), *errors]


def _compared(settings: Settings, points: Sequence[Point]) -> list[str]:
    if not points:
        return ["No size was replayed to its end, so there is nothing to compare."]
    if len(points) < 2:
        return ["One size alone does not show what more host memory buys; replay at least two."]
    last = points[-1]
    if not last.ceiling_rate:
        return [NOTHING_REPEATS, *_load(settings, points)]
    told = [*_gain(settings, points), *_goodput(points), *_load(settings, points)]
    told.append(
        f"No cache can hit more than {_percent(last.ceiling_rate)} of the prompt tokens of this "
        "trace; the rest is seen for the first time."
    )
    return told


def _goodput(points: Sequence[Point]) -> list[str]:
    """What the sizes do to the requests that keep the limits."""
    first, last = points[0], points[-1]
    if first.goodput_requests_per_s is None or last.goodput_requests_per_s is None:
        return []
    return [
        f"Goodput is {first.goodput_requests_per_s:,.2f} requests a second with "
        f"{gigabytes(first.host_bytes)} ({_percent(first.attained_rate or 0.0)} of the requests "
        f"keep their limits) and {last.goodput_requests_per_s:,.2f} with "
        f"{gigabytes(last.host_bytes)} ({_percent(last.attained_rate or 0.0)})."
    ]


def _gain(settings: Settings, points: Sequence[Point]) -> list[str]:
    """How much is enough, then what the nearest size that was tried brought."""
    first, last = points[0], points[-1]
    best = max(points, key=lambda point: point.hit_rate)
    place = first_enough(points)
    if best.hit_rate - base_rate(points) < LITTLE:
        return [
            f"From {gigabytes(first.host_bytes)} to {gigabytes(last.host_bytes)} of host memory "
            f"the hit rate stays within {LITTLE * 100:g} points of {_percent(first.hit_rate)}: "
            "more of it buys hardly anything here."
        ]
    size = recommended(points)
    if size is None or place is None:
        return [
            f"{_raised(first, last)}. The hits still grow there; nine tenths of what host memory "
            f"could add would be a hit rate of {_percent(wanted_rate(points))}: try --host-bytes "
            f"{gigabytes(2 * last.host_bytes, '')},{gigabytes(4 * last.host_bytes, '')}."
        ]
    ranks = " on all ranks together" if settings.parallelism.ranks > 1 else ""
    what = f"of host memory{ranks} for {machine(settings)}"
    if not place:
        smaller = [gigabytes(first.host_bytes // by, "") for by in (4, 2)]
        return [
            f"{gigabytes(size)} {what}, the smallest size tried, is enough for nine tenths of what "
            f"host memory can add to the hits; to see whether less is, try --host-bytes "
            f"{','.join(smaller)}."
        ]
    enough = points[place]
    told = f"Of the sizes tried, {_raised(first, enough)}"
    if best.hit_rate > best.ceiling_rate - LITTLE and enough is best:
        told += ", nearly all that this trace can hit"
    elif enough is not last:
        more = max(0.0, last.hit_rate - enough.hit_rate)
        told += f"; {gigabytes(last.host_bytes)} add {more * 100:.1f} points to that"
    return [
        f"About {gigabytes(size)} {what} are enough for nine tenths of what host memory can add "
        f"to the hits: a hit rate of {_percent(wanted_rate(points))}.",
        f"{told}.",
    ]


def _raised(first: Point, other: Point) -> str:
    base = "" if not first.host_bytes else f", compared with {gigabytes(first.host_bytes)},"
    return (
        f"{gigabytes(other.host_bytes)} of host memory{base} raise the hit rate from "
        f"{_percent(first.hit_rate)} to {_percent(other.hit_rate)}{_ttft(first, other)}"
    )


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
    option = eased(Load(most, 1.0), settings)
    which = "every size" if len(busy) == len(points) else f"{len(busy)} of {len(points)} sizes"
    return [
        f"With {which} the trace offers more than the machine can do (up to {most:.1f} x), so the "
        f"times to first token are mostly queueing; try {option}."
    ]


def _percent(rate: float) -> str:
    return percent(rate, 1)
