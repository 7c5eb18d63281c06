"""A point that was replayed several times with other draws of what is random, as one point.

Its document is that of the replay whose p90 time to first token is the median, with the figures of
all of them under `replays`. The draws of all points have the same seeds, so that two points differ
by what they are and not by what was drawn for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]

FIGURES: Mapping[str, Callable[[Document], float | None]] = {
    "hit_rate": lambda one: one["whole"]["hit_rate"],
    "ttft_p50_s": lambda one: one["latency_s"]["ttft"]["p50"],
    "ttft_p90_s": lambda one: one["latency_s"]["ttft"]["p90"],
    "attained_rate": lambda one: (one.get("slo") or {}).get("attained_rate"),
    "goodput_requests_per_s": lambda one: (one.get("slo") or {}).get("goodput_requests_per_s"),
}


def together(label: str, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """documents: of one point, one for each draw, in the same order for all points."""
    ordered = sorted(documents, key=FIGURES["ttft_p90_s"])  # type: ignore[arg-type]
    middle = ordered[(len(ordered) - 1) // 2]
    replays: dict[str, Any] = {
        "seeds": [one["config"]["seed"] for one in documents],
        "digests": [one["digest"] for one in documents],
    }
    for name, figure in FIGURES.items():
        found = [figure(one) for one in documents]
        replays[name] = None if None in found else found
    variant = middle["variant"] | {"label": label, "replays": replays}
    return middle | {"label": label, "replays": replays, "variant": variant}
