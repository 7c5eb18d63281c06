"""Which load a machine serves: one rule, for every search and every sentence.

A load is served if nine tenths of the requests that keep the limits on an idle machine keep them. A
prompt that takes longer than the limit when it is alone counts against no load. Without limits, a
load is served if the machine is not overloaded and requests wait in the queue for at most half of
their time to first token. Does not choose loads; see sizing/search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

SERVED = 0.9  # of the requests that an idle machine serves in time
_MOST_QUEUEING = 0.5

RULE = (
    "A load is served if nine tenths of the requests that keep the limits on an idle machine keep "
    "them"
)
RULE_WITHOUT_LIMITS = (
    "A load is served if its queue does not grow for the whole run, and requests wait in it for at "
    "most half of their time to first token; --slo says which times you need."
)
_UNSEARCHED = "Name the times you need (--slo), or the load (--speed, --concurrency)."


@dataclass(frozen=True, slots=True)
class Served:
    """A machine and its limit. amount: what it has, in words. served: the largest load that was
    tried and served; refused: the smallest that was not; None where there is no such load."""

    amount: str
    served: Fraction | None
    refused: Fraction | None

    def document(self) -> dict[str, Any]:
        found = asdict(self)
        for name in ("served", "refused"):
            found[name] = None if found[name] is None else float(found[name])
        return found


def serves(point: Mapping[str, Any], idle: float | None) -> bool:
    """Whether the machine of a point serves its load. idle: the part of the requests that keep the
    limits on an idle machine; None where it is not known."""
    slo, load = point.get("slo"), point.get("load") or {}
    if slo is not None and idle != 0:
        return bool(slo["attained_rate"] >= SERVED * (1.0 if idle is None else idle))
    return not load.get("overloaded") and load.get("queueing_share", 0.0) <= _MOST_QUEUEING


def sentences(found: Sequence[Served]) -> list[str]:
    """The limit of each machine, and how far the last is above the first."""
    if not found:
        return []
    told = [_limit(one) for one in found]
    first, last = found[0].served, found[-1].served
    more = f", {float(last / first):.2f} times as much" if first and last and first != last else ""
    advice = "" if any(one.served for one in found) else f" {_UNSEARCHED}"
    return [f"The largest load that is served: {'; '.join(told)}{more}.{advice}"]


def accuracy(found: Sequence[Served]) -> str:
    """How near a limit is known; empty if no machine has one between two loads that were tried."""
    between = any(one.served and one.refused for one in found)
    return " The largest load that is served was searched to within 5 %." if between else ""


def _limit(one: Served) -> str:
    if one.served is None:
        least = f", not even {_speed(one.refused)}" if one.refused else ""
        return f"none that was tried with {one.amount}{least}"
    end = (
        "the largest that was tried" if one.refused is None else f"{float(one.refused):g} x is not"
    )
    return f"{_speed(one.served)} with {one.amount} ({end})"


def _speed(load: Fraction) -> str:
    return f"{float(load):g} x the speed of the trace"
