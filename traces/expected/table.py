"""Which error to expect of predicted times: that of the judged runs that are nearest to a run.

Measurements that others published were replayed with constants that were fitted without them
(docs/fidelity.md): for known.json half of the rows of each engine, accelerator and model was left
out, for new.json all of them were. A run whose engine, accelerator and model are in the first gets
its errors from there, any other run from the second. No published value is in them.

Only runs with the same time model on the same accelerator count. Of these, runs that are as near to
saturation count if there are three of one kind, else all; of these again runs of the same engine,
else those of all engines. Then the nearest number of ranks comes first (by how often it doubles),
then the type of the weights, then the load (by classes), and last whether the model is among them.
Groups of fewer than three runs count only where there is no larger one on that accelerator. Each
metric has its own nearest group.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, convert
from msgspec.json import decode
from msgspec.structs import asdict

from sim.engine.sequence import RequestResult

from ..results.record import METRICS, ErrorOf, ExpectedError, Judged

PRECISIONS = ("bf16", "fp8", "fp4", "int4")
# Requests that run at once, by the first number of each class.
LOADS = {"1": 1, "2 to 8": 2, "9 to 64": 9, "65 or more": 65}
ALL = "all"  # engines, in a group of theirs
KNOWN, NEW = "known.json", "new.json"
MOST_QUEUEING = 0.5  # of the time to first token; above it requests mostly wait
_FP4 = ("nvfp4", "mxfp4")
_ENOUGH = 3
_ENGINES = ("vllm", "sglang", "trtllm")  # of the published runs
_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "throughput"}


class Group(Struct, frozen=True):
    """Judged runs of one kind. load: one of LOADS. engine: its name, or ALL. saturated: whether
    requests mostly wait. errors: by metric, of the absolute errors; nine of ten are at most
    `nine_tenths`, of all runs with this accelerator, engine, load and saturation."""

    times: str
    hardware: str
    ranks: int
    precision: str
    load: str
    engine: str
    saturated: bool
    models: tuple[str, ...]
    errors: Mapping[str, ErrorOf]


class _Table(Struct, frozen=True):
    groups: tuple[Group, ...]


@lru_cache(maxsize=2)
def shipped(name: str) -> tuple[Group, ...]:
    """A table that comes with hicache: `KNOWN` or `NEW`."""
    return decode(pkgutil.get_data(__package__ or "", name) or b"", type=_Table).groups


def precision(weight_dtype: str) -> str:
    """One of PRECISIONS, for the types of a model's weights as its description says them: that of
    the routed experts, if they have their own, because they are most of the weights."""
    first, *others = weight_dtype.split(", ")
    experts = [other.removeprefix("experts ") for other in others if other.startswith("experts ")]
    most = (experts or [first])[0]
    return "fp4" if most in _FP4 else most.partition("-")[0]


def load(at_once: float) -> str:
    """The class of a load."""
    classes = [name for name, first in LOADS.items() if round(at_once) >= first]
    return classes[-1] if classes else next(iter(LOADS))


def at_once(requests: Sequence[RequestResult], makespan_ns: int, replicas: int = 1) -> float:
    """How many requests run at once on a replica, on average; those in the queue do not count."""
    spent = sum(one.finish_ns - one.arrival_ns - one.queue_ns for one in requests)
    return spent / makespan_ns / replicas if makespan_ns else 0.0


def expected_error(run: Judged, known: Sequence[Group], new: Sequence[Group]) -> ExpectedError:
    """The errors to expect, from the groups of the two tables."""
    pair = run.engine, run.hardware
    published = any((one.engine, one.hardware) == pair and run.model in one.models for one in known)
    same = [one for one in (known if published else new) if one.times == run.times]
    here = [one for one in same if one.hardware == run.hardware]
    never = {
        "engine": run.engine not in _ENGINES,
        "times": not same,
        "stages": run.stages > 1,
        "hardware": not here,
    }
    missing = next((name for name, judged in never.items() if judged), None)
    if missing:
        return ExpectedError(False, published and missing != "engine", missing, run)
    errors = {
        metric: _nearest(run, metric, having)
        for metric in METRICS
        if (having := [group for group in here if metric in group.errors])
    }
    return ExpectedError(True, published, None, run, **errors)


def _nearest(run: Judged, metric: str, groups: Sequence[Group]) -> ErrorOf:
    saturated = run.queueing > MOST_QUEUEING
    known = [group for group in groups if group.errors[metric].runs >= _ENOUGH] or groups
    alike = [group for group in known if group.saturated == saturated] or known
    own = [group for group in alike if group.engine == run.engine]
    every = [group for group in alike if group.engine == ALL]
    group = min(own or every, key=lambda group: _distance(run, group))
    differs = {
        "engine": group.engine != run.engine,
        "saturation": group.saturated != saturated,
        "ranks": group.ranks != run.ranks,
        "precision": group.precision != run.precision,
        "load": group.load != run.load,
        "model": run.model not in group.models,
    }
    found = group.errors[metric]
    return ErrorOf(
        runs=found.runs,
        median=found.median,
        nine_tenths=found.nine_tenths,
        hardware=group.hardware,
        engine=group.engine,
        ranks=group.ranks,
        precision=group.precision,
        load=group.load,
        models=group.models,
        differs=[name for name, other in differs.items() if other],
    )


def _distance(run: Judged, group: Group) -> tuple[float, int, int, int, int]:
    """Less is nearer. Of equally near groups the one with fewer ranks wins."""
    loads, types = list(LOADS), list(PRECISIONS)
    known = run.precision in types and group.precision in types
    other = abs(types.index(run.precision) - types.index(group.precision)) if known else len(types)
    return (
        abs(math.log2(group.ranks / run.ranks)),
        0 if group.precision == run.precision else other,
        abs(loads.index(group.load) - loads.index(run.load)),
        run.model not in group.models,
        group.ranks,
    )


# -- as rows


def row(found: ExpectedError) -> str:
    """The median of each metric, and what nine of ten do not exceed; or that the times are not
    validated."""
    if not found.validated:
        run = found.run
        why = {
            "engine": f"no published run had the engine {run.engine}",
            "times": f"times of {run.times} were never compared",
            "stages": "no published run had pipeline stages",
            "hardware": f"no published run on {run.hardware}",
        }
        return f"not validated: {why.get(found.missing or '', found.missing)}"
    known = list(_known(found))
    parts = [
        f"{name} {_percent(one.median)} ({'nine of ten ' * (not at)}{_percent(one.nine_tenths)})"
        for at, (name, one) in enumerate(known)
    ]
    more = any("saturation" in one.differs for _, one in known)
    return ", ".join(parts) + "; other queues" * more + "; unpublished" * (not found.published)


def rows(found: ExpectedError) -> Iterator[tuple[str, ...]]:
    """For each metric: its name, median, ninth tenth, and the judged runs that they are from."""
    for name, one in _known(found):
        engine = "all engines" if one.engine == ALL else one.engine
        runs = f"{one.runs} {engine}, {one.ranks} x {one.hardware}, {one.precision}, {one.load}"
        unlike = ", ".join(one.differs)
        yield name, _percent(one.median), _percent(one.nine_tenths), runs, unlike


def together(errors: Iterable[ExpectedError | Mapping[str, Any] | None]) -> list[str]:
    """A line on the errors of several runs: the row that all have, or the range of the medians; and
    why runs are not validated. None: a run without times."""
    found = [convert(one, ExpectedError) if isinstance(one, Mapping) else one for one in errors]
    there = [one for one in found if one is not None]
    lines = list(dict.fromkeys(map(row, there)))
    if len(lines) < 2:
        return [f"Expected error: {line}" for line in lines]
    ranges = []
    for metric, name in _NAMES.items():
        each = [getattr(one, metric) for one in there]
        if medians := [one.median for one in each if one.runs]:
            least, most = (_percent(bound(medians)) for bound in (min, max))
            ranges.append(f"{name} {least}" if least == most else f"{name} {least} to {most}")
    told = [f"Expected error, in the median: {', '.join(ranges)}"] if ranges else []
    wrong = dict.fromkeys(row(one) for one in there if not one.validated)
    return [*told, *(f"Expected error: {line}" for line in wrong)]


def _known(found: ExpectedError) -> Iterator[tuple[str, ErrorOf]]:
    for metric, one in asdict(found).items():
        if metric in _NAMES and one.runs:
            yield _NAMES[metric], one


def _percent(rate: float | None) -> str:
    return f"{(rate or 0.0) * 100:.0f} %"
