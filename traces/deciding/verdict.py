"""The verdict of a sweep: the best of its points, what binds there, and what more of it would buy.

Pure: from documents to a document. Points that differ in their load only are compared for goodput;
the best point is one of those with the load of the first point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import words
from .break_even import BreakEven
from .buys import AXES, HOST, Axis, Step, amounts, goodput_of, goodput_per_cost, steps
from .limits import Evidence, Limit, limits
from .measured import Document, Measured, differ, measured
from .prices import Prices
from .serving import SERVED, Served, sentences

_NEARLY = 0.98  # of the best goodput is as good
_LIMITS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "latency"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """best: the label of the best point; None without points."""

    sentences: tuple[str, ...]
    limits: tuple[Limit, ...]
    buys: tuple[Mapping[str, object], ...]
    best: str | None
    break_even: BreakEven | None
    served: tuple[Served, ...] = ()

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return tuple(dict.fromkeys(one for limit in self.limits for one in limit.evidence))

    def document(self) -> dict[str, Any]:
        return {
            "sentences": list(self.sentences),
            "limits": [one.document() for one in self.limits],
            "evidence": [
                {"name": one.name, "value": one.value, "unit": one.unit, "label": one.label}
                for one in self.evidence
            ],
            "buys": [dict(one) for one in self.buys],
            "best": self.best,
            "served": [one.document() for one in self.served],
            "break_even": None if self.break_even is None else self.break_even.document(),
        }


def decide(
    points: Sequence[Document],
    curve: Document | None = None,
    slo: Mapping[str, float | None] | None = None,
    prices: Prices | None = None,
    break_even: BreakEven | None = None,
    served: Sequence[Served] = (),
    idle: float | None = None,
) -> Verdict:
    """points: JSON documents of replays with `label`, the one to compare with first. curve: of the
    same trace, of `hicache curve`. slo: limits in seconds (`ttft_s`, `tpot_s`). served: the loads
    that machines serve. idle: the part of the requests that keep the limits without any load."""
    known = [measured(point) for point in points if point["whole"]["input_tokens"]]
    even = () if break_even is None else (break_even.sentence(),)
    if not known:
        return Verdict(("No point was replayed to its end.", *even), (), (), None, break_even)
    best = _best(known, prices)
    binding = limits(best, curve)
    around = [step for axis in AXES for step in _around(known, best, axis)]
    limits_told = _in_words(slo)
    told = [*words.unserved(_rivals(known), limits_told, idle)]
    told += [words.headline(known, best, binding), *sentences(served)]
    told += words.kept(best, known, limits_told)
    if prices is None and limits_told:
        told += words.other_gpus(best, _rivals(known))
    told += words.nine_tenths(curve)
    told += words.binds(binding)
    told += [words.bought(step) for step in around if step.axis is not HOST]
    value = goodput_per_cost(best, prices)
    if prices is not None and value is not None:
        told.append(words.priced(best, value, prices, prices.cost_per_hour(amounts(best))))
    elif prices is not None and all(point.goodput is None for point in known):
        told.append(words.unpriced())
    return Verdict(
        (*told, *even),
        tuple(binding),
        tuple(_bought(step, prices) for step in around),
        best.label,
        break_even,
        tuple(served),
    )


def _best(points: Sequence[Measured], prices: Prices | None) -> Measured:
    """With prices, the point with the most goodput for its cost, of those where nine tenths of the
    requests keep the limits, if there is one. Otherwise, of the points with the GPUs, link and
    storage of the first one, the one with the least host memory that is nearly as good as any."""
    rivals = _rivals(points)
    kept = [point for point in rivals if (point.attained or 0.0) >= SERVED]
    values = [(goodput_per_cost(point, prices), point) for point in kept or rivals]
    priced = [(value, point) for value, point in values if value is not None]
    if priced:
        most = max(value for value, _ in priced)
        return next(point for value, point in priced if value == most)
    rivals = [point for point in rivals if _machine(point) == _machine(points[0])]
    good = [point for point in rivals if all(_as_good(points, point, one) for one in rivals)]
    return min(good or rivals, key=lambda point: point.host_gb)


def _rivals(points: Sequence[Measured]) -> list[Measured]:
    """The points with the load of the first one."""
    return [point for point in points if point.speed == points[0].speed]


def _machine(point: Measured) -> tuple[Any, ...]:
    names = ("host_bandwidth", "storage", "storage_bandwidth_read", "storage_bandwidth_write")
    return (point.gpus, *(point.config.get(name) for name in names))


def _as_good(points: Sequence[Measured], one: Measured, other: Measured) -> bool:
    """Whether a point is nearly as good as another: in goodput where it is known, in the p90 time
    to first token where it is measured, and in hits otherwise."""
    goodputs = goodput_of(points, one, other)
    if goodputs is not None and max(goodputs) > 0:
        less = goodputs[0] < _NEARLY * goodputs[1]
        return not less or not _apart(one, other, "goodput_requests_per_s")
    if one.times is not None and other.times is not None:
        longer = one.times.ttft_p90 > other.times.ttft_p90 * (1 + words.LITTLE_TIME)
        return not longer or not _apart(one, other, "ttft_p90_s")
    return one.hit_rate >= other.hit_rate - words.LITTLE_RATE


def _apart(one: Measured, other: Measured, figure: str) -> bool:
    """Whether chance alone does not explain a difference."""
    return differ(one.values(figure), other.values(figure))


def _around(points: Sequence[Measured], best: Measured, axis: Axis) -> list[Step]:
    """The steps that end and begin at the best point; where no point differs from it in this amount
    alone, the steps of the longest line."""
    rivals = [point for point in points if point.speed == best.speed]
    found = steps(points, best, axis)
    if found:
        return [step for step in found if best is step.start or best is step.end]
    return max((steps(points, point, axis) for point in rivals), key=len)


def _bought(step: Step, prices: Prices | None) -> dict[str, object]:
    axis = step.axis
    price = None if prices is None else prices.per_hour.get(axis.price)
    return {
        "resource": axis.resource,
        "unit": axis.unit,
        "from": {"label": step.start.label, "amount": axis.amount(step.start)},
        "to": {"label": step.end.label, "amount": axis.amount(step.end)},
        "per_unit": {
            "hit_rate": step.hit_rate,
            "ttft_p90_s": step.ttft_p90_s,
            "goodput_requests_per_s": step.goodput_requests_per_s,
        },
        "price_per_hour": price,
        "goodput_per_cost": goodput_per_cost(step.end, prices),
        "sentence": words.bought(step),
    }


def _in_words(slo: Mapping[str, float | None] | None) -> list[str]:
    known = {} if slo is None else slo
    named = ((_LIMITS.get(name, name), limit) for name, limit in known.items())
    return [f"{name} {spelled(limit)}" for name, limit in named if limit is not None]


def spelled(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
