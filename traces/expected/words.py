"""The error to expect, as JSON values, in one row, and as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from .table import ALL, METRICS, Expected, Nearest

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "throughput"}
_OF_GROUP = ("hardware", "engine", "ranks", "precision", "load")
Document = Mapping[str, Any]


def document(expected: Expected) -> dict[str, Any]:
    """The `expected_error` of a `--json` document; see docs/json.md."""
    found: dict[str, Any] = {
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


def row(found: Document) -> str:
    """The median of each metric, and what nine of ten do not exceed, of an `expected_error`; or
    that the times are not validated."""
    if not found["validated"]:
        return f"not validated: {_missing(found)}"
    known = [(name, found[metric]) for metric, name in _NAMES.items() if found[metric]["runs"]]
    parts = [
        f"{name} {_percent(one['median'])} ({'nine of ten ' * (not at)}"
        f"{_percent(one['nine_tenths'])})"
        for at, (name, one) in enumerate(known)
    ]
    more = any("saturation" in one["differs"] for _, one in known)
    return ", ".join(parts) + "; other queues" * more + "; unpublished" * (not found["published"])


def rows(found: Document) -> Iterator[tuple[str, ...]]:
    """For each metric: its name, median, ninth tenth, and the judged runs that they are from."""
    for metric, name in _NAMES.items():
        if count := found[metric]["runs"]:
            one = found[metric]
            engine = "all engines" if one["engine"] == ALL else one["engine"]
            runs = f"{count} {engine}, {one['ranks']} x {one['hardware']}, {one['precision']}, "
            runs += one["load"]
            unlike = ", ".join(one["differs"])
            yield name, _percent(one["median"]), _percent(one["nine_tenths"]), runs, unlike


def together(documents: Iterable[Document | None]) -> list[str]:
    """A line on the `expected_error` of several runs: the row that all have, or the range of the
    medians; and why runs are not validated. None: a run without times."""
    found = [one for one in documents if one]
    lines = list(dict.fromkeys(map(row, found)))
    if len(lines) < 2:
        return [f"Expected error: {line}" for line in lines]
    ranges = []
    for metric, name in _NAMES.items():
        if medians := [one[metric]["median"] for one in found if one[metric]["runs"]]:
            least, most = (_percent(bound(medians)) for bound in (min, max))
            ranges.append(f"{name} {least}" if least == most else f"{name} {least} to {most}")
    told = [f"Expected error, in the median: {', '.join(ranges)}"] if ranges else []
    wrong = dict.fromkeys(row(one) for one in found if not one["validated"])
    return [*told, *(f"Expected error: {line}" for line in wrong)]


def _missing(found: Document) -> str:
    run = found["run"]
    return {
        "engine": f"no published run had the engine {run['engine']}",
        "times": f"times of {run['times']} were never compared",
        "stages": "no published run had pipeline stages",
        "hardware": f"no published run on {run['hardware']}",
    }[found["missing"]]


def _percent(rate: float) -> str:
    return f"{rate * 100:.0f} %"
