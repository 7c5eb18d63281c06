"""What binds at one point: two divisions that add up to a whole, and what they consist of.

    time to first token   = queue (load) + waiting for loads (tier bandwidth) + compute
    tokens that repeat    = hits
                            + those that the optimum of the same memory hits besides (policy)
                            + those that it does not hit either (capacity)

The strength of a limit is its share. If nearly all that repeats is hit, the working set is what
binds: more memory finds nothing to keep, and its strength is the share of the hits. The second
division needs the optimum of the curve at the capacity of the point; without it, all that was lost
counts as capacity. The curve is taken as linear between its capacities; below its first one the
optimum is not known, above its last one nothing more can be hit. Where nothing repeats, memory does
not bind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from .measured import Measured, Times

LEAST = 0.05  # a limit with less is not named
OF_MEMORY = ("working_set", "capacity", "policy")
_BUSY = 0.9  # a link that is busier than this binds
_LITTLE = 0.05  # of what repeats: less is not worth more memory
_LITTLE_RATE = 0.01  # the same, of all prompt tokens


@dataclass(frozen=True, slots=True)
class Evidence:
    """label: of the point that has the figure; "curve" for the curve."""

    name: str
    value: float
    unit: str
    label: str


@dataclass(frozen=True, slots=True)
class Limit:
    """resource: working_set, capacity, policy, tier_bandwidth, compute or load. short: for the end
    of another sentence."""

    resource: str
    strength: float
    sentence: str
    short: str
    evidence: tuple[Evidence, ...]

    def document(self) -> dict[str, object]:
        found = asdict(self)
        del found["short"]
        return found | {"evidence": [asdict(one) for one in self.evidence]}


def limits(point: Measured, curve: Mapping[str, Any] | None) -> list[Limit]:
    """The limits of a point, strongest first. curve: a curve document of the same trace."""
    found = [*_of_tokens(point, curve)]
    if point.times is not None and point.times.parts > 0:
        found += _of_time(point, point.times)
    named = [one for one in found if one.strength >= LEAST]
    return sorted(named, key=lambda one: -one.strength)


def _of_time(point: Measured, times: Times) -> Iterator[Limit]:
    queue, load, compute = (part / times.parts for part in (times.queue, times.load, times.compute))
    mean = Evidence("mean time to first token", times.ttft_mean, "s", point.label)
    offered = [Evidence("offered load", point.offered, "x", point.label)] if point.offered else []
    over = ""
    if point.offered and point.offered > 1.1:
        over = f", and the trace offers {point.offered:.1f} times what the machine can do"
    yield Limit(
        "load",
        queue,
        f"Requests wait in the queue for {percent(queue)} of their time to first token{over}.",
        f"load, {percent(queue)} of the time to first token is queueing",
        (mean, Evidence("queueing", times.queue, "s", point.label), *offered),
    )
    busiest = max(point.busy, key=point.busy.__getitem__, default="")
    busy = point.busy.get(busiest, 0.0)
    waits = Evidence("waiting for loads", times.load, "s", point.label)
    shares = [
        Evidence(f"busy: {name}", share, "", point.label) for name, share in point.busy.items()
    ]
    said = f" The {busiest}, is busy for {percent(busy)} of the run." if busy else ""
    yield Limit(
        "tier_bandwidth",
        max(load, busy if busy >= _BUSY else 0.0),
        f"Waiting for loads takes {percent(load)} of the time to first token.{said}",
        "bandwidth between the tiers",
        (mean, waits, *shares),
    )
    yield Limit(
        "compute",
        compute,
        f"Computing takes {percent(compute)} of the time to first token: "
        f"{point.computed_tokens:,} of {point.input_tokens:,} prompt tokens are computed.",
        f"compute, {percent(compute)} of the time to first token",
        (mean, Evidence("compute", times.compute, "s", point.label)),
    )


def _of_tokens(point: Measured, curve: Mapping[str, Any] | None) -> Iterator[Limit]:
    if not point.ceiling_tokens:
        return
    lost = max(0, point.ceiling_tokens - point.hit_tokens)
    best = _optimum(point, curve)
    by_policy = 0.0 if best is None else min(lost, max(0.0, best - point.hit_tokens))
    repeats = point.ceiling_tokens
    rate = Evidence("hit rate", point.hit_rate, "", point.label)
    ceiling = Evidence("hit rate of an unbounded cache", point.ceiling_rate, "", point.label)
    working = None if curve is None else _working_set(curve)
    size = f" {working[0]} hold all that repeats." if working else ""
    if lost <= _LITTLE * repeats or point.ceiling_rate - point.hit_rate < _LITTLE_RATE:
        yield Limit(
            "working_set",
            1 - lost / repeats,
            f"The cache hits nearly all that repeats; {percent(1 - point.ceiling_rate)} of the "
            f"prompt tokens are seen for the first time, and no cache can hit them.{size}",
            "what prompts repeat, of which nearly all is hit"
            + (f" ({working[0]} hold it)" if working else ""),
            (rate, ceiling, *((working[1],) if working else ())),
        )
        return
    yield Limit(
        "capacity",
        (lost - by_policy) / repeats,
        f"More memory could raise the hit rate from {percent(point.hit_rate, 1)} to "
        f"{percent(point.ceiling_rate, 1)}.{size}",
        f"capacity, hit rate {percent(point.hit_rate, 1)} of {percent(point.ceiling_rate, 1)}"
        + (f" with a working set of {working[0]}" if working else ""),
        (rate, ceiling, *((working[1],) if working else ())),
    )
    if best is not None:
        optimum = best / point.input_tokens
        mine, ideal = percent(point.hit_rate, 1), percent(optimum, 1)
        yield Limit(
            "policy",
            by_policy / repeats,
            f"With the same memory, an order of eviction that knows the future would hit {ideal} "
            f"and not {mine}. No real one does; more memory brings the same.{size}",
            f"memory, hit rate {mine}, and at most {ideal} with any order of eviction"
            + (f"; the working set is {working[0]}" if working else ""),
            (rate, Evidence("hit rate of the optimum, same capacity", optimum, "", "curve")),
        )


def _optimum(point: Measured, curve: Mapping[str, Any] | None) -> float | None:
    """The tokens that the optimum hits with the memory of the point, scaled to its requests."""
    known = None if curve is None else curve["policies"].get("optimum")
    if curve is None or known is None or point.cache_tokens is None:
        return None
    sizes = curve["capacities_tokens"]
    if not sizes or point.cache_tokens < sizes[0] or not curve["input_tokens"]:
        return None
    tokens = float(np.interp(point.cache_tokens, sizes, known["hit_tokens"]))
    return tokens / float(curve["input_tokens"]) * point.input_tokens


def _working_set(curve: Mapping[str, Any]) -> tuple[str, Evidence]:
    tokens, each = curve["working_set_tokens"], curve.get("bytes_per_token")
    if each:
        size = tokens * each / 1e9
        return gigabytes(size), Evidence("working set", size, "GB", "curve")
    return f"{tokens:,} tokens", Evidence("working set", tokens, "tokens", "curve")


def gigabytes(amount: float) -> str:
    """As people say it: 610 GB, 2.1 TB."""
    return f"{digits(amount / 1000)} TB" if amount >= 999.5 else f"{digits(amount)} GB"


def digits(amount: float, most: int = 3, sign: str = "") -> str:
    """So many digits, or all before the point; never as a power of ten."""
    if abs(amount) >= 10**most:
        return f"{amount:{sign},.0f}"
    return f"{Decimal(f'{amount:.{most}g}'):{sign},f}"


def percent(rate: float, places: int = 0) -> str:
    return f"{rate * 100:.{places}f} %"
