"""The errors that were found when predictions were judged, and which of them to expect of a run.

Measurements that others published were replayed with constants that were fitted without them (see
docs/fidelity.md): for known.json half of the rows of each engine, accelerator and model was left
out, for new.json all of them were. A run whose engine, accelerator and model
are in the first gets its errors from there, any other run from the second. A table has, for each
time model, accelerator, number of ranks, type of weights, load and engine, near saturation
and not, and for all engines together, how many judged runs there were, and the median of their
absolute errors. What nine of ten do not exceed is of more runs, since few have no tenth: those on
the accelerator with this engine, load and nearness to saturation, whatever their ranks and weights
(of all loads where they are fewer than 5). No published value is in it.

The nearest runs are found so: only runs with the same time model on the same accelerator count. Of
these, runs that are as near to saturation count if there are three of one kind, else all; of these
again runs of the same engine, else those of all engines. Then the nearest number of ranks comes
first (by how often it doubles), then the type of the weights, then the load (by classes), and last
whether the model is among them. Groups of fewer than three runs count only where there is no larger
one on that accelerator. Each metric has its own nearest group, because not every published run has
every metric. Does not say anything (see words).
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from hicache.core.errors import CallerError
from hicache.files import FLAG, TEXT, Named, Record, fit, number, parsed, text_of, whole, word
from sim.engine.sequence import RequestResult

SCHEMA = 3
METRICS = ("ttft", "tpot", "throughput")
PRECISIONS = ("bf16", "fp8", "fp4", "int4")
# Requests that run at once, by the first number of each class.
LOADS = {"1": 1, "2 to 8": 2, "9 to 64": 9, "65 or more": 65}
ALL = "all"  # engines, in a group of theirs
KNOWN, NEW = "known.json", "new.json"
_KIND = "expected errors"
_MOST_BYTES = 8 << 20
_AGAIN = "take the file of this release"
_FP4 = ("nvfp4", "mxfp4")
MOST_QUEUEING = 0.5  # of the time to first token; above it requests mostly wait


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure of one judged run. error: signed, (predicted - published) / published.

    ranks: accelerators of a replica. at_once: requests that run at once on average. queueing: the
    part of their time to first token that requests waited in the queue.
    """

    times: str
    hardware: str
    model: str
    ranks: int
    precision: str
    at_once: float
    metric: str
    error: float
    engine: str
    queueing: float = 0.0


@dataclass(frozen=True, slots=True)
class Error:
    """Of the absolute errors of so many runs. nine_tenths: nine of ten are at most this large, of
    the runs that the module names."""

    runs: int
    median: float
    nine_tenths: float

    def __post_init__(self) -> None:
        if self.nine_tenths < self.median and self.runs > 1:
            raise CallerError(
                f"expected nine_tenths of at least the median {self.median}, found "
                f"{self.nine_tenths}"
            )


@dataclass(frozen=True, slots=True)
class Group:
    """Judged runs of one kind. load: one of LOADS. engine: its name, or ALL. saturated: whether
    requests mostly wait, see `Asked.near_saturation`. errors: by metric."""

    times: str
    hardware: str
    ranks: int
    precision: str
    load: str
    engine: str
    saturated: bool
    models: tuple[str, ...]
    errors: Mapping[str, Error]

    def __post_init__(self) -> None:
        if not self.errors or set(self.errors) - set(METRICS):
            raise CallerError(
                f"errors: expected some of {', '.join(METRICS)}, found "
                f"{', '.join(self.errors)[:60] or 'none'}"
            )


_TABLE = {
    "kind": word(_KIND),
    "schema": whole(SCHEMA, SCHEMA),
    "groups": [
        Record(
            Group,
            {
                "str": TEXT,
                "bool": FLAG,
                "ranks": whole(1),
                "load": word(*LOADS),
                "models": [TEXT],
                "errors": Named(Record(Error, {"int": whole(1), "float": number(0, 1e18)})),
            },
        )
    ],
}


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


def _saturated(queueing: float) -> bool:
    return queueing > MOST_QUEUEING


def at_once(requests: Sequence[RequestResult], makespan_ns: int, replicas: int = 1) -> float:
    """How many requests run at once on a replica, on average; those in the queue do not count."""
    spent = sum(one.finish_ns - one.arrival_ns - one.queue_ns for one in requests)
    return spent / makespan_ns / replicas if makespan_ns else 0.0


def summary(judged: Iterable[Judged]) -> str:
    """The text of the table. The same figures in any order give the same text."""
    errors: dict[tuple[str, str, int, str, str, str, bool], dict[str, list[float]]] = {}
    models: dict[tuple[str, str, int, str, str, str, bool], set[str]] = {}
    wide: dict[tuple[object, ...], list[float]] = {}
    for one in judged:
        for engine in (ALL, one.engine):
            run = one.times, one.hardware, one.ranks, one.precision, load(one.at_once)
            key = *run, engine, _saturated(one.queueing)
            errors.setdefault(key, {}).setdefault(one.metric, []).append(abs(one.error))
            models.setdefault(key, set()).add(one.model)
            for more in _wider(key, one.metric):
                wide.setdefault(more, []).append(abs(one.error))
    groups = [
        Group(
            *key,
            models=tuple(sorted(models[key])),
            errors={
                name: _error(found[name], [wide[more] for more in _wider(key, name)])
                for name in METRICS
                if name in found
            },
        )
        for key, found in sorted(errors.items())
    ]
    lines = ",\n".join("  " + json.dumps(asdict(group)) for group in groups)
    head = f'{{\n "kind": "{_KIND}",\n "schema": {SCHEMA},\n "groups": ['
    return f"{head}\n{lines}\n ]\n}}\n" if groups else f"{head}]\n}}\n"


_ENOUGH_FOR_TENTHS = 5


def _wider(
    key: tuple[str, str, int, str, str, str, bool], metric: str
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    times, hardware, _, _, load, engine, saturated = key
    return (times, hardware, engine, metric, load, saturated), (times, hardware, engine, metric)


def _error(errors: list[float], wider: Sequence[list[float]]) -> Error:
    """The tenth is that of one run more, so that it holds for the next one."""
    ordered = sorted(errors)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    enough = [each for each in wider if len(each) >= _ENOUGH_FOR_TENTHS]
    many = sorted((enough or wider)[0])
    tenth = many[min(len(many), math.ceil(0.9 * (len(many) + 1))) - 1]
    return Error(count, round(middle, 4), round(max(middle, tenth), 4))


def queueing(requests: Sequence[RequestResult]) -> float:
    """The part of their time to first token that requests wait in the queue."""
    waited = sum(one.queue_ns for one in requests)
    first = sum(one.first_token_ns - one.arrival_ns for one in requests)
    return waited / first if first else 0.0


@lru_cache(maxsize=2)
def shipped(name: str) -> tuple[Group, ...]:
    """A table that comes with hicache: `KNOWN` or `NEW`."""
    text = (pkgutil.get_data(__package__ or "", name) or b"").decode()
    return parse(text, name)


def read(path: str) -> tuple[Group, ...]:
    """The table of a file. Raises CallerError in one line."""
    return parse(text_of(path, _KIND, _MOST_BYTES, _AGAIN), path)


def parse(text: str, name: str) -> tuple[Group, ...]:
    """Raises CallerError, which names the file and the group, for a table that is not right."""
    try:
        found = parsed(text)
    except ValueError as error:
        raise CallerError(f"{name}: expected JSON, found {error}; {_AGAIN}") from None
    return tuple(fit(found, _TABLE, name, _AGAIN)["groups"])


_ENOUGH = 3
_ENGINES = ("vllm", "sglang", "trtllm")  # of the published runs


@dataclass(frozen=True, slots=True)
class Asked:
    """The run of which an error is expected. engine: name of its profile. queueing: the part of the
    time to first token that its requests wait in the queue. stages: of the pipeline."""

    times: str
    hardware: str
    engine: str
    model: str
    ranks: int
    precision: str
    load: str
    queueing: float = 0.0
    stages: int = 1

    @property
    def near_saturation(self) -> bool:
        """Whether requests mostly wait, so that a small error of service times is a large one of
        TTFT."""
        return _saturated(self.queueing)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest group with one metric. differs: in what it is not like the run, of `engine`,
    `saturation`, `ranks`, `precision`, `load` and `model`."""

    metric: str
    group: Group
    error: Error
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known. nearest: by metric, in their order; empty for a run that is not validated,
    and `missing` says what was never judged: `times`, `engine`, `stages` or `hardware`. known:
    runs of its engine, accelerator and model were published."""

    asked: Asked
    nearest: tuple[Nearest, ...]
    missing: str = ""
    known: bool = False


def expected_error(asked: Asked, known: Sequence[Group], new: Sequence[Group]) -> Expected:
    """The errors to expect, from the groups of the two tables."""
    if asked.engine not in _ENGINES:
        return Expected(asked, (), "engine")
    pair = asked.engine, asked.hardware
    published = any(
        (one.engine, one.hardware) == pair and asked.model in one.models for one in known
    )
    groups = known if published else new
    same = [group for group in groups if group.times == asked.times]
    if not same:
        return Expected(asked, (), "times")
    if asked.stages > 1:
        return Expected(asked, (), "stages")
    same = [group for group in same if group.hardware == asked.hardware]
    found = tuple(
        _nearest(asked, metric, having)
        for metric in METRICS
        if (having := [group for group in same if metric in group.errors])
    )
    return Expected(asked, found, "" if found else "hardware", published)


def _nearest(asked: Asked, metric: str, groups: Sequence[Group]) -> Nearest:
    large = [group for group in groups if group.errors[metric].runs >= _ENOUGH]
    known = large or groups
    alike = [group for group in known if group.saturated == asked.near_saturation]
    own = [group for group in alike or known if group.engine == asked.engine]
    every = [group for group in alike or known if group.engine == ALL]
    group = min(own or every, key=lambda group: _distance(asked, group))
    differs = tuple(
        name
        for name, alike in (
            ("engine", group.engine == asked.engine),
            ("saturation", group.saturated == asked.near_saturation),
            ("ranks", group.ranks == asked.ranks),
            ("precision", group.precision == asked.precision),
            ("load", group.load == asked.load),
            ("model", asked.model in group.models),
        )
        if not alike
    )
    return Nearest(metric, group, group.errors[metric], differs)


def _distance(asked: Asked, group: Group) -> tuple[float, int, int, int, int]:
    """Less is nearer. Of equally near groups the one with fewer ranks wins."""
    loads, types = list(LOADS), list(PRECISIONS)
    known = asked.precision in types and group.precision in types
    other = (
        abs(types.index(asked.precision) - types.index(group.precision)) if known else len(types)
    )
    return (
        abs(math.log2(group.ranks / asked.ranks)),
        0 if group.precision == asked.precision else other,
        abs(loads.index(group.load) - loads.index(asked.load)),
        asked.model not in group.models,
        group.ranks,
    )
