"""The times of two runs of one workload, request by request: how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

GOALS = {"tpot": 0.07, "ttft": 0.12}
WITHIN = 0.25
_NINE = 90


@dataclass(frozen=True, slots=True)
class Times:
    """Of each request: time to the first token, between two tokens (0 for an answer of one token),
    until it was first in a pass, and the prompt tokens that hit. tokens_per_s: answered tokens of
    all, by the time from the first arrival to the last token."""

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    queue_s: tuple[float, ...]
    hits: tuple[int, ...]
    tokens_per_s: float


def of_answers(answer: dict[str, Any]) -> Times:
    """Those of an engine, from what its process has answered. A request waits from when it was due,
    also while a pass keeps it from being sent."""
    rows = answer["answers"]
    several = [len(one["tokens"]) - 1 for one in rows]
    last = max(one["last_s"] for one in rows)
    return Times(
        ttft_s=tuple(one["first_s"] - _began(one) for one in rows),
        tpot_s=tuple(
            (one["last_s"] - one["first_s"]) / more if more else 0.0
            for one, more in zip(rows, several, strict=True)
        ),
        queue_s=tuple(
            (one["first_s"] if one["admitted_s"] is None else one["admitted_s"]) - _began(one)
            for one in rows
        ),
        hits=tuple(max(0, one["cached"] or 0) for one in rows),
        tokens_per_s=sum(len(one["tokens"]) for one in rows)
        / (last - min(_began(one) for one in rows)),
    )


def _began(one: dict[str, Any]) -> float:
    due = one["due_s"]
    return float(due if due > 0 else one["sent_s"])


def median_of(runs: Sequence[Times]) -> Times:
    """Each figure the median of the same workload's runs."""

    def middle(name: str) -> tuple[float, ...]:
        table = np.array([getattr(one, name) for one in runs], dtype=np.float64)
        return tuple(np.median(table, axis=0).tolist())

    return Times(
        middle("ttft_s"),
        middle("tpot_s"),
        middle("queue_s"),
        runs[0].hits,
        float(np.median([one.tokens_per_s for one in runs])),
    )


@dataclass(frozen=True, slots=True)
class Apart:
    """Relative differences of some figures: the median of their sizes, what nine of ten are within,
    the median with its sign, and how many are within 25 %."""

    count: int
    median: float
    nine_of_ten: float
    bias: float
    within: float

    @classmethod
    def of(cls, measured: Sequence[float], other: Sequence[float]) -> Apart:
        """measured: figures above 0 count."""
        pairs = [(one, two) for one, two in zip(measured, other, strict=True) if one > 0]
        if not pairs:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        errors = np.array([two / one - 1 for one, two in pairs])
        sizes = np.abs(errors)
        return cls(
            len(pairs),
            float(np.median(sizes)),
            float(np.percentile(sizes, _NINE)),
            float(np.median(errors)),
            float(np.mean(sizes <= WITHIN)),
        )


def apart(measured: Times, other: Times) -> dict[str, Any]:
    """How far `other` is from what was measured. Queues are compared in parts of the time to the
    first token, since many are 0."""
    queues = np.array(other.queue_s) - np.array(measured.queue_s)
    parts = np.abs(queues) / np.maximum(measured.ttft_s, 1e-9)
    ttft, tpot = (
        Apart.of(getattr(measured, name), getattr(other, name)) for name in ("ttft_s", "tpot_s")
    )
    return {
        "ttft": ttft,
        "tpot": tpot,
        "throughput": other.tokens_per_s / measured.tokens_per_s - 1,
        "queue": float(np.median(parts)),
        "queue_nine_of_ten": float(np.percentile(parts, _NINE)),
        "equal_hits": sum(one == two for one, two in zip(measured.hits, other.hits, strict=True)),
    }


def together(rows: Sequence[Times]) -> Times:
    """The requests of several workloads. The throughput is that of the first."""
    return Times(
        tuple(value for one in rows for value in one.ttft_s),
        tuple(value for one in rows for value in one.tpot_s),
        tuple(value for one in rows for value in one.queue_s),
        tuple(value for one in rows for value in one.hits),
        rows[0].tokens_per_s,
    )
