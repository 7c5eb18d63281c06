"""The experiments of a third party on H100 with vLLM 0.15.1, on which it scored other simulators.

A case is one experiment as a whole or one stage of it. Configurations, what vLLM took, and the
errors of the others: github.com/inference-sim/sim-to-real-accuracy-validation at dcec3fd,
results_trainval/error_records.csv; requests and pools: github.com/inference-sim/inference-sim,
testdata/trained_physics_iter29.json. In the first the runs `general` and `roleplay` of Llama 2 7B
have the folder, and so the figures, of `codegen`, in all simulators: nine cases are three, which
count as they do there. No constant of this project was fitted to a case.

ITL there is the time between two messages of the stream, see `by_length`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from .predicting import Outcome
from .rows import Row, read

FILE = Path(__file__).parent / "third_party.jsonl"
METRICS = ("e2e", "itl", "ttft")
HERE = "hicache"


@dataclass(frozen=True, slots=True)
class Scored:
    """Medians of absolute errors of means, by metric. here: of this project on the same cases."""

    simulator: str
    cases: int
    errors: dict[str, float]
    here: dict[str, float]


def rows() -> list[Row]:
    """All cases, in the form of published measurements."""
    return read(FILE)


def scored(outcomes: Sequence[Outcome]) -> list[Scored]:
    """A row for each simulator and one for this project, the most cases first, then the smallest
    error end to end. Cases that were not predicted here count for nobody."""
    ours = {one.id: _errors(one) for one in outcomes if one.figures}
    theirs: dict[str, dict[str, dict[str, float]]] = {HERE: ours}
    for case, found in _others().items():
        for simulator, errors in found.items():
            theirs.setdefault(simulator, {})[case] = errors
    result = []
    for simulator, by_case in theirs.items():
        cases = [case for case in by_case if case in ours]
        if cases:
            both = [_medians([each[case] for case in cases]) for each in (by_case, ours)]
            result.append(Scored(simulator, len(cases), *both))
    return sorted(result, key=lambda one: (-one.cases, one.errors[METRICS[0]]))


def by_length(outcomes: Sequence[Outcome]) -> float:
    """The median error of the time per token, (end to end - TTFT) / (configured length - 1).

    The source counts messages, and those of Llama 2 7B are fewer than its tokens.
    """
    configured = {row.id: row.workload["shared_prefix"]["output"] for row in rows()}
    found = []
    for one in outcomes:
        by_name = {figure.name: figure for figure in one.figures}
        e2e, ttft = by_name["e2e_mean_ms"], by_name["ttft_mean_ms"]
        published_s = (e2e.published - ttft.published) / (configured[one.id] - 1)
        found.append(abs(by_name["itl_mean_ms"].predicted / published_s - 1))
    return float(np.median(found))


def _errors(outcome: Outcome) -> dict[str, float]:
    """Signed errors of the means."""
    by_name = {figure.name: figure.error for figure in outcome.figures}
    return {metric: by_name[f"{metric}_mean_ms"] for metric in METRICS}


def _medians(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        metric: float(np.median([abs(errors[metric]) for errors in found])) for metric in METRICS
    }


@cache
def _others() -> dict[str, dict[str, dict[str, float]]]:
    """By case and simulator, the signed errors."""
    found = {}
    for line in FILE.read_text().splitlines():
        row = json.loads(line)
        found[row["id"]] = {
            simulator: {metric: percent / 100 for metric, percent in errors.items()}
            for simulator, errors in row["errors_of_others"].items()
        }
    return found
