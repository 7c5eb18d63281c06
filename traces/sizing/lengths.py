"""The verdict for a trace that has lengths only: which load each number of GPUs serves.

Nothing is said of hits, since nobody knows which prompts begin alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .plan import gpus_of

ATTAINED = 0.9  # of the requests, where there are limits
_OF_A_CACHE = ("working_set", "capacity", "policy", "tier_bandwidth")


def without_hits(verdict: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict of these points without what it says of a cache."""
    limits = [one for one in verdict["limits"] if one["resource"] not in _OF_A_CACHE]
    buys = [
        {**one, "per_unit": {**one["per_unit"], "hit_rate": None}}
        for one in verdict["buys"]
        if one["resource"] == "gpu"
    ]
    return {
        **verdict,
        "sentences": [*served(points), *(one["sentence"] for one in limits)],
        "limits": limits,
        "evidence": [fact for one in limits for fact in one["evidence"]],
        "buys": buys,
        "break_even": None,
    }


def served(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each number of GPUs, the largest load that was tried and that it serves."""
    told = []
    for gpus in sorted({point["config"]["tp"] for point in points}):
        tried = [point for point in points if point["config"]["tp"] == gpus]
        tried.sort(key=lambda point: point["config"]["speed"])
        good = [point for point in tried if _serves(point)]
        name = gpus_of(gpus)
        if not good:
            told.append(f"{name}: no load that was tried is served; try a lower --speed.")
            continue
        most, more = good[-1], good[-1] is not tried[-1]
        ttft, tpot = (most["latency_s"][key]["p90"] for key in ("ttft", "tpot"))
        end = "" if more else ", the largest load that was tried"
        told.append(
            f"{name}: the trace is served at {most['config']['speed']:g} x its speed{end}, with a "
            f"p90 time to first token of {ttft:,.2f} s and {tpot * 1e3:,.0f} ms per output token."
        )
    return told


def _serves(point: Mapping[str, Any]) -> bool:
    """Whether it keeps up, and attains its limits, if there are any, for most requests."""
    slo = point.get("slo")
    attained = slo is None or slo["attained_rate"] >= ATTAINED
    return attained and not (point.get("load") or {}).get("overloaded")
