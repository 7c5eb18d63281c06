"""What one more gigabyte, gigabyte per second or GPU buys: differences between neighbouring points.

A *line* is the points that are alike but for one amount, in its order. Between two neighbours every
figure is taken as linear, so a difference divided by the step is what each further unit brings
there. Outside of the points of a line there is no figure: nothing is extended beyond them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .measured import OF_HOST, Measured
from .prices import Prices

LOAD = frozenset(
    {
        *("speed", "arrivals", "request_rate", "concurrency", "closed_loop", "think_time"),
        *("spread", "scale_sessions"),
    }
)
Figure = Callable[[Measured], float | None]


@dataclass(frozen=True, slots=True)
class Axis:
    """An amount that points differ in. unit: of one more. name: of several, in words. price: its
    name in a list of prices. ignored: settings that differ with it."""

    resource: str
    unit: str
    name: str
    price: str
    amount: Figure
    ignored: frozenset[str]


HOST = Axis(
    "host_gigabyte",
    "GB",
    "GB of host memory",
    "host",
    lambda point: point.host_gb,
    frozenset({"host_pages", "host_tokens", "swa_host_tokens", "mamba_host_states"}),
)
LINK = Axis(
    "tier_gigabyte_per_s",
    "GB/s",
    "GB/s of host link",
    "link",
    lambda point: point.link_gb_per_s,
    frozenset({"host_bandwidth"}),
)
STORAGE = Axis(
    "tier_gigabyte_per_s",
    "GB/s",
    "GB/s of storage bandwidth",
    "link",
    lambda point: point.storage_gb_per_s,
    frozenset({"storage_bandwidth_read", "storage_bandwidth_write", "storage"}),
)
GPU = Axis(
    "gpu",
    "GPU",
    "GPUs",
    "gpu",
    lambda point: float(point.gpus),
    frozenset(
        {
            *("tp", "pp", "replicas", "prefill_replicas", "decode_replicas", "router"),
            *("weight_bytes_per_rank", "device_pages", "device_tokens"),
            *("swa_tokens", "mamba_states"),
        }
    ),
)
AXES = (HOST, LINK, STORAGE, GPU)


@dataclass(frozen=True, slots=True)
class Step:
    """Two neighbours of a line. hit_rate, ttft_p90_s, goodput_requests_per_s: what one more unit
    adds between them; None where a point has no such figure."""

    axis: Axis
    start: Measured
    end: Measured
    hit_rate: float
    ttft_p90_s: float | None
    goodput_requests_per_s: float | None

    @property
    def size(self) -> float:
        return _amount(self.axis, self.end) - _amount(self.axis, self.start)


def alike(one: Measured, other: Measured, ignored: frozenset[str]) -> bool:
    """Whether two points have the same settings but for these. What only a host pool reads is
    ignored where one of them has none."""
    if not (one.host_gb and other.host_gb):
        ignored = ignored | OF_HOST
    names = (one.config.keys() | other.config.keys()) - ignored - {"seed"}
    return all(one.config.get(name) == other.config.get(name) for name in names)


def line(points: Sequence[Measured], through: Measured, axis: Axis) -> list[Measured]:
    """The points that differ from `through` in this amount alone, ascending, each amount once."""
    found: dict[float, Measured] = {}
    if axis.amount(through) is not None:
        for point in (through, *points):
            amount = axis.amount(point)
            if amount is not None and alike(point, through, axis.ignored):
                found.setdefault(amount, point)
    return [found[amount] for amount in sorted(found)]


def steps(points: Sequence[Measured], through: Measured, axis: Axis) -> list[Step]:
    """Every pair of neighbours on the line through a point."""
    return [_step(points, axis, *pair) for pair in pairwise(line(points, through, axis))]


def _step(points: Sequence[Measured], axis: Axis, start: Measured, end: Measured) -> Step:
    size = _amount(axis, end) - _amount(axis, start)
    before, after = start.times, end.times
    goodputs = goodput_of(points, start, end)
    return Step(
        axis,
        start,
        end,
        (end.hit_rate - start.hit_rate) / size,
        None if before is None or after is None else (after.ttft_p90 - before.ttft_p90) / size,
        None if goodputs is None else (goodputs[1] - goodputs[0]) / size,
    )


def goodput_of(
    points: Sequence[Measured], one: Measured, other: Measured
) -> tuple[float, float] | None:
    """The most goodput of each, over the loads at which both were measured."""
    known = [
        {
            point.speed: point.goodput
            for point in (mine, *points)
            if point.goodput is not None and alike(point, mine, LOAD)
        }
        for mine in (one, other)
    ]
    common = known[0].keys() & known[1].keys()
    if not common:
        return None
    return max(known[0][load] for load in common), max(known[1][load] for load in common)


def amounts(point: Measured) -> dict[str, float]:
    """What a point has, by the names of prices."""
    return {
        "gpu": float(point.gpus),
        "host": point.host_gb,
        "storage": (point.config.get("storage_size") or 0) / 1e9,
        "link": (point.link_gb_per_s or 0.0) if point.host_gb else 0.0,
    }


def goodput_per_cost(point: Measured, prices: Prices | None) -> float | None:
    """Requests within the limits for one unit of money; None without goodput or a cost."""
    cost = 0.0 if prices is None else prices.cost_per_hour(amounts(point))
    return None if point.goodput is None or not cost else point.goodput * 3600 / cost


def _amount(axis: Axis, point: Measured) -> float:
    amount = axis.amount(point)
    assert amount is not None, "a line has only points with its amount"
    return amount
