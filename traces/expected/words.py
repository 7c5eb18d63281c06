"""The error to expect, in one sentence for people, and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .table import ALL, METRICS, Asked, Expected, Nearest

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "throughput"}
_OF_GROUP = ("hardware", "engine", "ranks", "precision", "load")
_WAITING = ", whose requests mostly wait"
_DIRECTION = "trust their direction more than their size"


def sentence(expected: Expected) -> str:
    """One line: the errors and the runs that they are from, or that the times are not validated."""
    if not expected.nearest:
        return f"Not validated: {_missing(expected)}; {_DIRECTION}."
    parts: list[list[Nearest]] = []
    for one in expected.nearest:
        if parts and parts[-1][0].group == one.group:
            parts[-1].append(one)
        else:
            parts.append([one])
    whose = "" if expected.known else " of an engine, accelerator and model that nobody published"
    told = f"Expected error{whose}: {'; '.join(_part(part, expected.asked) for part in parts)}."
    unlike = any("saturation" in one.differs for one in expected.nearest)
    near = expected.asked.near_saturation
    return told + (_saturated(expected.asked) if near and unlike else "")


def _saturated(asked: Asked) -> str:
    return (
        f" Requests wait in the queue for {_percent(asked.queueing)} of their time to first token: "
        f"so near saturation TTFT errs by more than that."
    )


def document(expected: Expected) -> dict[str, Any]:
    """The `expected_error` of a `--json` document; see docs/json.md."""
    found: dict[str, Any] = {
        "sentence": sentence(expected),
        "validated": bool(expected.nearest),
        "published": expected.known,
        "missing": expected.missing or None,
        "run": asdict(expected.asked),
    }
    nearest = {one.metric: one for one in expected.nearest}
    return found | {metric: _metric(nearest.get(metric)) for metric in METRICS}


def _metric(one: Nearest | None) -> dict[str, Any]:
    group = one and one.group
    return {
        "runs": one.error.runs if one else 0,
        "median": one and one.error.median,
        "nine_tenths": one and one.error.nine_tenths,
        **{name: getattr(group, name, None) for name in _OF_GROUP},
        "models": list(group.models) if group else [],
        "differs": list(one.differs) if one else [],
    }


def together(documents: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Sentences about the `expected_error` of several runs: the one that all have, or the range of
    the medians, and which runs are not validated. None: a run without times."""
    found = [one for one in documents if one]
    same = list(dict.fromkeys(one["sentence"] for one in found))
    if len(same) < 2:
        return same
    told = []
    ranges = []
    for metric, name in _NAMES.items():
        medians = [one[metric]["median"] for one in found if one[metric]["runs"]]
        if medians:
            least, most = (_percent(bound(medians)) for bound in (min, max))
            ranges.append(f"{name} {least}" if least == most else f"{name} {least} to {most}")
    if ranges:
        told.append(
            f"Expected error of these times, in the median: {_listed(ranges)}; --json says from "
            "which judged runs each is."
        )
    return [*told, *dict.fromkeys(one["sentence"] for one in found if not one["validated"])]


def _missing(expected: Expected) -> str:
    asked = expected.asked
    if expected.missing == "engine" and asked.engine != "plain":
        return f"no published run had the engine {asked.engine}"
    if expected.missing == "engine":
        return "--engine plain has no time of the host, which every published run had"
    if expected.missing == "times":
        return f"the times of {asked.times} were never compared with published runs"
    if expected.missing == "stages":
        return "no published run that was compared had pipeline stages"
    return f"no published run on {asked.hardware} was compared with the times of {asked.times}"


def _part(found: Sequence[Nearest], asked: Asked) -> str:
    """The metrics that have the same runs."""
    group = found[0].group
    medians = _listed([f"{_NAMES[one.metric]} {_percent(one.error.median)}" for one in found])
    counts = [one.error.runs for one in found]
    runs = f"{min(counts)} to {max(counts)}" if min(counts) != max(counts) else f"{counts[0]}"
    limits = _listed([_percent(one.error.nine_tenths) for one in found])
    engine = "all engines" if group.engine == ALL else group.engine
    text = (
        f"{medians} (median of {runs} judged {'run' if runs == '1' else 'runs'} of {engine} on "
        f"{group.hardware} with {_ranks(group.ranks)}, {group.precision} weights and {group.load} "
        f"at once{_WAITING if group.saturated else ''}; nine of ten, with any GPUs and weights, "
        f"within {limits}"
    )
    unlike = _unlike(found, asked)
    return f"{text}; this run has {unlike})" if unlike else f"{text})"


def _unlike(found: Sequence[Nearest], asked: Asked) -> str:
    differs = found[0].differs
    said = {
        "saturation": "" if asked.near_saturation else "short queues",  # `_saturated` says it
        "ranks": _ranks(asked.ranks),
        "precision": f"{asked.precision} weights",
        "load": f"{asked.load} at once",
        "model": "another model",
    }
    return _listed([text for name, text in said.items() if name in differs and text])


def _ranks(ranks: int) -> str:
    return "1 GPU" if ranks == 1 else f"{ranks} GPUs"


def _percent(rate: float) -> str:
    return f"{rate * 100:.0f} %"


def _listed(texts: Sequence[str]) -> str:
    *most, last = texts or [""]
    return f"{', '.join(most)} and {last}" if most else last
