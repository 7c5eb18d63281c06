"""Which error to expect of predicted times: that of the judged runs that are nearest to a run.

Measurements that others published were replayed with constants that were fitted without them
(docs/figures.md): for known.json all rows of their server and benchmark were left out, for
new.json all of their engine, accelerator and model. A run whose three are in the first gets its
errors from there, any other run from the second. docs/replay.md has the order in which runs are
near. Groups of fewer than three runs count only where there is no larger one on that accelerator,
and each metric has its own nearest group.
"""

import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, convert
from msgspec.json import decode
from msgspec.structs import replace

from sim.engine.sequence import RequestResult

from ..results.record import ErrorOf, ExpectedError

# Requests that run at once, by the first number of each class.
LOADS = {"1": 1, "2 to 8": 2, "9 to 64": 9, "65 or more": 65}
ALL = "all"  # engines, in a group of theirs
KNOWN, NEW = "known.json", "new.json"
MOST_QUEUEING = 0.5  # of the time to first token; above it requests mostly wait
_PRECISIONS = ("bf16", "fp8", "fp4", "int4")
_ENOUGH = 3
_ENGINES = ("vllm", "sglang", "trtllm")  # of the published runs
_METRICS = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "throughput"}


class Validated(Struct, frozen=True):
    """The run of which an error is expected. engine: name of its profile. ranks: accelerators of a
    replica. load: one of LOADS. queueing: share of TTFT spent in the queue. stages: of the
    pipeline."""

    times: str
    hardware: str
    engine: str
    model: str
    ranks: int
    precision: str
    load: str
    queueing: float = 0.0
    stages: int = 1


class Group(Struct, frozen=True):
    """Judged runs of one kind. engine: its name, or ALL. saturated: whether requests mostly wait.
    errors: by metric; nine of ten are at most `nine_tenths`, of all runs with this accelerator,
    engine, load and saturation."""

    times: str
    hardware: str
    ranks: int
    precision: str
    load: str
    engine: str
    saturated: bool
    models: tuple[str, ...]
    errors: Mapping[str, ErrorOf]


@lru_cache(maxsize=2)
def shipped(name: str) -> tuple[Group, ...]:
    """A table that comes with hicache: `KNOWN` or `NEW`."""
    return convert(decode(pkgutil.get_data(__name__, name) or b"")["groups"], tuple[Group, ...])


def precision(weight_dtype: str) -> str:
    """The type of a model's weights: that of the routed experts, which are most of them, if they
    have their own."""
    first, *others = weight_dtype.split(", ")
    experts = [other.removeprefix("experts ") for other in others if other.startswith("experts ")]
    most = (experts or [first])[0]
    return "fp4" if most in ("nvfp4", "mxfp4") else most.partition("-")[0]


def load(at_once: float) -> str:
    """The class of a load."""
    reached = sum(round(at_once) >= first for first in LOADS.values())
    return list(LOADS)[max(0, reached - 1)]


def at_once(requests: Sequence[RequestResult], makespan_ns: int, replicas: int = 1) -> float:
    """How many requests run at once on a replica, on average; those in the queue do not count."""
    spent = sum(request.finish_ns - request.arrival_ns - request.queue_ns for request in requests)
    return spent / makespan_ns / replicas if makespan_ns else 0.0


def expected_error(run: Validated, known: Sequence[Group], new: Sequence[Group]) -> ExpectedError:
    """The errors to expect, from the groups of the two tables."""
    pair = run.engine, run.hardware
    published = any(
        (item.engine, item.hardware) == pair and run.model in item.models for item in known
    )
    same = [item for item in (known if published else new) if item.times == run.times]
    here = [item for item in same if item.hardware == run.hardware]
    never = {
        f"the engine {run.engine}": run.engine not in _ENGINES,
        f"times of {run.times}": not same,
        "pipeline stages": run.stages > 1,
        f"the accelerator {run.hardware}": not here,
    }
    if missing := next((name for name, validated in never.items() if validated), None):
        return ExpectedError(missing, published and run.engine in _ENGINES)
    errors = {
        metric: _nearest(run, metric, having)
        for metric in _METRICS
        if (having := [group for group in here if metric in group.errors])
    }
    return ExpectedError(None, published, **errors)


def _nearest(run: Validated, metric: str, groups: Sequence[Group]) -> ErrorOf:
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
    unlike = [name for name, other in differs.items() if other]
    return replace(group.errors[metric], differs=unlike)


def _distance(run: Validated, group: Group) -> tuple[float, int, int, int, int]:
    """Less is nearer. Of equally near groups the one with fewer ranks wins."""
    loads, types = list(LOADS), _PRECISIONS
    known = run.precision in types and group.precision in types
    other = abs(types.index(run.precision) - types.index(group.precision)) if known else len(types)
    return (
        abs(math.log2(group.ranks / run.ranks)),
        0 if group.precision == run.precision else other,
        abs(loads.index(group.load) - loads.index(run.load)),
        run.model not in group.models,
        group.ranks,
    )


# -- in words


def row(error: ExpectedError) -> str:
    """The median of each metric, and what nine of ten do not exceed; or that the times are not
    validated."""
    if error.missing is not None:
        return f"not validated: no published run had {error.missing}"
    known = [(name, item) for key, name in _METRICS.items() if (item := getattr(error, key))]
    parts = [
        f"{name} {item.median:.0%} ({'nine of ten ' * (not at)}{item.nine_tenths:.0%})"
        for at, (name, item) in enumerate(known)
    ]
    more = any("saturation" in item.differs for _, item in known)
    message = ", ".join(parts).replace("%", " %")
    return message + "; other queues" * more + "; unpublished" * (not error.published)


def together(errors: Iterable[ExpectedError | Mapping[str, Any] | None]) -> list[str]:
    """A line on the errors of several runs: the row that all have, or the range of the medians; and
    why runs are not validated. None: a run without times."""
    result = [convert(error, ExpectedError) for error in errors if error is not None]
    lines = list(dict.fromkeys(map(row, result)))
    if len(lines) > 1:
        ranges = []
        for metric, name in _METRICS.items():
            medians = [item.median for error in result if (item := getattr(error, metric))]
            ends = dict.fromkeys(f"{end(medians) * 100:.0f} %" for end in (min, max) if medians)
            ranges += [f"{name} {' to '.join(ends)}"] * bool(medians)
        wrong = dict.fromkeys(row(item) for item in result if item.missing is not None)
        lines = [f"in the median {', '.join(ranges)}"] * bool(ranges) + [*wrong]
    return [f"Expected error: {line}" for line in lines]
