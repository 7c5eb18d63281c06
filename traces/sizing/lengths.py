"""The verdict for a trace that has lengths only: which load each number of GPUs serves.

Nothing is said of hits, since nobody knows which prompts begin alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..deciding.chance import span
from ..deciding.serving import Served, sentences
from ..terminal.tables import percent

_OF_A_CACHE = ("working_set", "capacity", "policy", "tier_bandwidth")


def without_hits(
    verdict: Mapping[str, Any], points: Sequence[Mapping[str, Any]], served: Sequence[Served]
) -> dict[str, Any]:
    """The verdict of these points without what it says of a cache."""
    limits = [one for one in verdict["limits"] if one["resource"] not in _OF_A_CACHE]
    buys = [
        {**one, "per_unit": {**one["per_unit"], "hit_rate": None}}
        for one in verdict["buys"]
        if one["resource"] == "gpu"
    ]
    told = [*sentences(served), *map(_times, points), *(one["sentence"] for one in limits)]
    return {
        **verdict,
        "sentences": told,
        "limits": limits,
        "evidence": [fact for one in limits for fact in one["evidence"]],
        "buys": buys,
        "break_even": None,
    }


def _times(point: Mapping[str, Any]) -> str:
    """The times of a point, and how many requests keep the limits."""
    replays = point["replays"]
    times = [
        f"{name} TTFT {span(replays[f'ttft_{name}_s'], lambda one: f'{one:.2f}')} s"
        for name in ("p50", "p90")
    ]
    if replays["attained_rate"]:
        kept = span(replays["attained_rate"], lambda one: percent(one, 1))
        times.append(f"{kept} of the requests keep the limits")
    return f"{point['label']}: {', '.join(times)}."
