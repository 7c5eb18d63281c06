"""What a table of errors says: medians and nine tenths by half, kind, accelerator, model, engine.

The halves are never mixed. Only figures that no rule leaves out are counted, of grades A and B; C
is summed up apart. The errors of the judged half are also the table from which reports say what to
expect (traces/expected). Does not predict or print.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..expected.table import METRICS, Asked, Judged, expected_error, load, parse, precision
from ..expected.table import summary as expected_errors
from .choosing import HALVES, JUDGE, half_of
from .figures import JUDGED, TPOT, TTFT
from .predicting import KINDS, Compared, Outcome
from .rules import FIGURE_RULES, NOT_FIRST, RULES

_COUNTED = ("A", "B")
_WORST = 10
_NEAR, _FAR = 0.10, 0.25
_NINE_TENTHS = 90
_TAILS = ("p90", "p95", "p99")
COVERED = ("short queues", "requests mostly wait")

Pair = tuple[Outcome, Compared]
_BY: dict[str, Callable[[Pair], str]] = {
    "kinds": lambda pair: pair[1].kind,
    "gpus": lambda pair: pair[0].hardware,
    "models": lambda pair: pair[0].model,
    "engines": lambda pair: f"{pair[0].engine} {pair[0].version}".strip(),
    "parallelism": lambda pair: f"{pair[0].ranks} ranks" if pair[0].ranks else "no server",
    "precisions": lambda pair: pair[0].precision or "none",
    "limits": lambda pair: pair[0].limits or "no server",
}
GROUPINGS = tuple(_BY)


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of some figures. median, nine_tenths: of absolute errors. bias: median of signed ones.
    within_10, within_25: parts of the figures."""

    figures: int
    median: float
    nine_tenths: float
    bias: float
    within_10: float
    within_25: float


def judged(outcomes: Iterable[Outcome], half: str, grades: Sequence[str] = _COUNTED) -> list[Pair]:
    """The figures of a half that count."""
    return [
        (outcome, figure)
        for outcome in outcomes
        if outcome.half == half and outcome.grade in grades
        for figure in outcome.figures
        if not figure.rule
    ]


def tails(outcomes: Iterable[Outcome], half: str) -> dict[str, Summary]:
    """Summaries of the tails of times that a source has beside the judged mean or median, by
    quantity and statistic, such as "ttft p99"."""
    found: dict[str, list[Compared]] = {}
    for outcome in outcomes:
        if outcome.half != half or outcome.grade not in _COUNTED:
            continue
        for one in outcome.figures:
            if one.rule == NOT_FIRST and one.statistic in _TAILS and one.quantity in (TTFT, TPOT):
                found.setdefault(f"{one.quantity} {one.statistic}", []).append(one)
    return {name: summary(found[name]) for name in sorted(found, reverse=True)}


def summary(figures: Sequence[Compared]) -> Summary:
    signed = np.array([figure.error for figure in figures])
    errors = np.abs(signed)
    return Summary(
        len(figures),
        float(np.median(errors)),
        float(np.percentile(errors, _NINE_TENTHS)),
        float(np.median(signed)),
        float((errors <= _NEAR).mean()),
        float((errors <= _FAR).mean()),
    )


def by_quantity(pairs: Iterable[Pair]) -> dict[str, Summary]:
    """A summary of each quantity that occurs, in the order of the quantities."""
    found: dict[str, list[Compared]] = {}
    for _, figure in pairs:
        found.setdefault(figure.quantity, []).append(figure)
    return {name: summary(found[name]) for name in JUDGED if name in found}


def grouped(pairs: Sequence[Pair], grouping: str) -> dict[str, dict[str, Summary]]:
    """Summaries by one of `GROUPINGS`, then by quantity."""
    key = _BY[grouping]
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(key(pair), []).append(pair)
    order = list(KINDS) if grouping == "kinds" else sorted(parts)
    return {name: by_quantity(parts[name]) for name in order if name in parts}


def worst(pairs: Sequence[Pair], count: int = _WORST) -> list[Pair]:
    """The largest errors. Hit rates, whose errors are differences, come by the same number."""
    return sorted(pairs, key=lambda pair: -abs(pair[1].error))[:count]


def left_out(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Rows by the rule that leaves them out, in the order of the rules."""
    found = Counter(outcome.left_out for outcome in outcomes if outcome.left_out)
    return {rule: found[rule] for rule in RULES if rule in found}


def not_judged(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Figures that are shown and not judged, by rule."""
    found = Counter(one.rule for outcome in outcomes for one in outcome.figures if one.rule)
    return {rule: found[rule] for rule in FIGURE_RULES if rule in found}


def halves(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The document of each half: see docs/json.md."""
    return {half: _half(outcomes, half) for half in HALVES}


def _half(outcomes: Sequence[Outcome], half: str) -> dict[str, Any]:
    pairs = judged(outcomes, half)
    kinds = grouped(pairs, "kinds")
    return {
        "count": len({outcome.id for outcome, _ in pairs}),
        "figures": len(pairs),
        "medians": {
            kind: {name: one.median for name, one in found.items()} for kind, found in kinds.items()
        },
        "quantities": _documents(by_quantity(pairs)),
        **{
            name: {key: _documents(found) for key, found in grouped(pairs, name).items()}
            for name in GROUPINGS
        },
        "tails": _documents(tails(outcomes, half)),
        **({"coverage": coverage(outcomes)} if half == JUDGE else {}),
        "worst": [
            {"id": outcome.id, "name": figure.name, "kind": figure.kind, "error": figure.error}
            for outcome, figure in worst(pairs)
        ],
    }


def _documents(found: dict[str, Summary]) -> dict[str, dict[str, Any]]:
    return {name: asdict(one) for name, one in found.items()}


def summary_of(outcomes: Iterable[Outcome]) -> str:
    """The text of the table of errors to expect."""
    return expected_errors(_of_servers(outcomes).values())


def coverage(outcomes: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """How often the error bar of a report holds: nine of ten within so much. The bar of a run is
    made of the runs in the other half (by a hash of their ids), so it has not seen its error.
    Figures, and those within the bar, of runs whose queues are short and of those that mostly
    wait."""
    found = {name: {"figures": 0, "within": 0} for name in COVERED}
    halves: dict[str, dict[tuple[str, str, str], Judged]] = {half: {} for half in HALVES}
    for key, one in _of_servers(outcomes).items():
        halves[half_of(key[0])][key] = one
    for half, other in (HALVES, HALVES[::-1]):
        groups = parse(expected_errors(halves[other].values()), f"the half to {other}")
        for one in halves[half].values():
            run = Asked(
                one.times,
                one.hardware,
                one.engine,
                one.model,
                one.ranks,
                one.precision,
                load(one.at_once),
                one.queueing,
            )
            bars = {bar.metric: bar.error for bar in expected_error(run, groups, groups).nearest}
            if one.metric in bars:
                counts = found[COVERED[run.near_saturation]]
                counts["figures"] += 1
                counts["within"] += abs(one.error) <= bars[one.metric].nine_tenths
    return found


def _of_servers(outcomes: Iterable[Outcome]) -> dict[tuple[str, str, str], Judged]:
    """Every judged figure of a server, with each time model, by row, time model and figure."""
    return {
        (outcome.id, outcome.times, figure.name): Judged(
            times=outcome.times,
            hardware=outcome.hardware.replace("_", "-"),
            model=outcome.model,
            ranks=outcome.ranks,
            precision=precision(outcome.precision),
            at_once=outcome.at_once,
            metric=figure.quantity,
            error=figure.error,
            engine=outcome.engine,
            queueing=outcome.queueing,
        )
        for outcome, figure in judged(outcomes, JUDGE)
        if outcome.ranks and figure.quantity in METRICS
    }
