"""The errors that were found when predictions were judged, and which of them to expect of a run.

`hicache fidelity` replays measurements that others published and writes the table (judged.json):
for each time model, accelerator, number of ranks, type of weights, load and engine, and for all
engines together, how many judged runs there were, and the median and the ninth tenth of their
absolute errors. No published value is in it.

The nearest runs are found so: only runs with the same time model on the same accelerator count. Of
these, runs of the same engine count if there are three of one kind, else those of all engines. Then
the nearest number of ranks comes first (by how often it doubles), then the type of the weights,
then the load (by classes), and last whether the model is among them. Groups of fewer than three
runs count only where there is no larger one on that accelerator. Each metric has its own nearest
group, because not every published run has every metric. Does not say anything (see words).
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from hicache.core.errors import CallerError
from hicache.files import TEXT, Named, Record, fit, number, parsed, text_of, whole, word
from sim.engine.sequence import RequestResult

SCHEMA = 2
METRICS = ("ttft", "tpot", "throughput")
PRECISIONS = ("bf16", "fp8", "fp4", "int4")
# Requests that run at once, by the first number of each class.
LOADS = {"1": 1, "2 to 8": 2, "9 to 64": 9, "65 or more": 65}
ALL = "all"  # engines, in a group of theirs
_FILE = "judged.json"
_KIND = "expected errors"
_MOST_BYTES = 8 << 20
_AGAIN = "write it again with hicache fidelity"
_FP4 = ("nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure of one judged run. error: signed, (predicted - published) / published.

    ranks: accelerators of a replica. at_once: requests that run at once on average.
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


@dataclass(frozen=True, slots=True)
class Error:
    """Of the absolute errors of so many runs. nine_tenths: nine of ten are at most this large."""

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
    """Judged runs of one kind. load: one of LOADS. engine: its name, or ALL. errors: by metric."""

    times: str
    hardware: str
    ranks: int
    precision: str
    load: str
    engine: str
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


def at_once(requests: Sequence[RequestResult], makespan_ns: int, replicas: int = 1) -> float:
    """How many requests run at once on a replica, on average; those in the queue do not count."""
    spent = sum(one.finish_ns - one.arrival_ns - one.queue_ns for one in requests)
    return spent / makespan_ns / replicas if makespan_ns else 0.0


def summary(judged: Iterable[Judged]) -> str:
    """The text of the table. The same figures in any order give the same text."""
    errors: dict[tuple[str, str, int, str, str, str], dict[str, list[float]]] = {}
    models: dict[tuple[str, str, int, str, str, str], set[str]] = {}
    for one in judged:
        for engine in (ALL, one.engine):
            key = one.times, one.hardware, one.ranks, one.precision, load(one.at_once), engine
            errors.setdefault(key, {}).setdefault(one.metric, []).append(abs(one.error))
            models.setdefault(key, set()).add(one.model)
    groups = [
        Group(
            *key,
            models=tuple(sorted(models[key])),
            errors={name: _error(found[name]) for name in METRICS if name in found},
        )
        for key, found in sorted(errors.items())
    ]
    lines = ",\n".join("  " + json.dumps(asdict(group)) for group in groups)
    head = f'{{\n "kind": "{_KIND}",\n "schema": {SCHEMA},\n "groups": ['
    return f"{head}\n{lines}\n ]\n}}\n" if groups else f"{head}]\n}}\n"


def _error(errors: list[float]) -> Error:
    ordered = sorted(errors)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Error(count, round(middle, 4), round(ordered[math.ceil(0.9 * count) - 1], 4))


@lru_cache(maxsize=1)
def shipped() -> tuple[Group, ...]:
    """The table that comes with hicache."""
    text = (pkgutil.get_data(__package__ or "", _FILE) or b"").decode()
    return parse(text, _FILE)


def read(path: str) -> tuple[Group, ...]:
    """The table of a file. Raises CallerError in one line."""
    return parse(text_of(path, _KIND, _MOST_BYTES, "write one with hicache fidelity"), path)


def parse(text: str, name: str) -> tuple[Group, ...]:
    """Raises CallerError, which names the file and the group, for a table that is not right."""
    try:
        found = parsed(text)
    except ValueError as error:
        raise CallerError(f"{name}: expected JSON, found {error}; {_AGAIN}") from None
    return tuple(fit(found, _TABLE, name, _AGAIN)["groups"])


_ENOUGH = 3
_MOST_QUEUEING = 0.5
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
        TTFT, larger than in judged runs."""
        return self.queueing > _MOST_QUEUEING


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest group with one metric. differs: in what it is not like the run, of `engine`,
    `ranks`, `precision`, `load` and `model`."""

    metric: str
    group: Group
    error: Error
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known. nearest: by metric, in their order; empty for a run that is not validated,
    and `missing` says what was never judged: `times`, `engine`, `stages` or `hardware`."""

    asked: Asked
    nearest: tuple[Nearest, ...]
    missing: str = ""


def expected_error(asked: Asked, groups: Sequence[Group]) -> Expected:
    """The errors to expect, from the groups of a table."""
    if asked.engine not in _ENGINES:
        return Expected(asked, (), "engine")
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
    return Expected(asked, found, "" if found else "hardware")


def _nearest(asked: Asked, metric: str, groups: Sequence[Group]) -> Nearest:
    large = [group for group in groups if group.errors[metric].runs >= _ENOUGH]
    known = large or groups
    own = [group for group in known if group.engine == asked.engine]
    every = [group for group in known if group.engine == ALL]
    group = min(own or every, key=lambda group: _distance(asked, group))
    differs = tuple(
        name
        for name, alike in (
            ("engine", group.engine == asked.engine),
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
