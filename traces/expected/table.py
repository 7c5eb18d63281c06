"""The errors that were found when predictions were judged: a small table that comes with hicache.

`hicache fidelity` replays measurements that others published and writes the table (judged.json):
for each time model, accelerator, number of ranks, type of weights, load and engine, and for all
engines together, how many judged runs there were, and the median and the ninth tenth of their
absolute errors. No published value is in it. Does not choose a group (see nearest) or say anything
(see words).
"""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import text_of
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
        found = json.loads(text)
    except ValueError as error:
        raise _wrong(name, "JSON", str(error)) from None
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        raise _wrong(name, f'"kind": "{_KIND}"', str(found)[:60])
    if found.get("schema") != SCHEMA:
        raise _wrong(name, f"schema {SCHEMA}", repr(found.get("schema")))
    groups = found.get("groups")
    if not isinstance(groups, list):
        raise _wrong(name, "a list of groups", type(groups).__name__)
    return tuple(_group(one, f"{name}, group {place}") for place, one in enumerate(groups))


def _group(found: Any, where: str) -> Group:
    if not isinstance(found, dict):
        raise _wrong(where, "an object", type(found).__name__)
    for field in ("times", "hardware", "precision", "load", "engine"):
        if not isinstance(found.get(field), str):
            raise _wrong(where, f"a text as {field}", repr(found.get(field)))
    ranks, models, errors = (found.get(field) for field in ("ranks", "models", "errors"))
    if type(ranks) is not int or ranks < 1:
        raise _wrong(where, "ranks of at least 1", repr(ranks))
    if found["load"] not in LOADS:
        raise _wrong(where, f"a load of {', '.join(LOADS)}", repr(found["load"]))
    if not isinstance(models, list) or not all(isinstance(one, str) for one in models):
        raise _wrong(where, "a list of models", repr(models)[:60])
    if not isinstance(errors, dict) or not errors or set(errors) - set(METRICS):
        raise _wrong(where, f"errors of {', '.join(METRICS)}", repr(errors)[:60])
    return Group(
        times=found["times"],
        hardware=found["hardware"],
        ranks=ranks,
        precision=found["precision"],
        load=found["load"],
        engine=found["engine"],
        models=tuple(models),
        errors={
            name: _read_error(errors[name], f"{where}, {name}")
            for name in METRICS
            if name in errors
        },
    )


def _read_error(found: Any, where: str) -> Error:
    known = isinstance(found, dict) and set(found) == {"runs", "median", "nine_tenths"}
    if not known or type(found["runs"]) is not int or found["runs"] < 1:
        raise _wrong(where, "runs, median and nine_tenths", repr(found)[:80])
    median, nine_tenths = found["median"], found["nine_tenths"]
    for value in (median, nine_tenths):
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise _wrong(where, "errors of at least 0", repr(value))
    if nine_tenths < median and found["runs"] > 1:
        raise _wrong(where, f"nine_tenths of at least the median {median}", repr(nine_tenths))
    return Error(found["runs"], float(median), float(nine_tenths))


def _wrong(where: str, expected: str, found: str) -> CallerError:
    return CallerError(
        f"{where}: expected {expected}, found {found}; write it again with hicache fidelity"
    )
