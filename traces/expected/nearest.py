"""Which judged runs are nearest to a run, and so which error to expect of it.

The rule: only runs with the same time model on the same accelerator count. Of these, runs of the
same engine count if there are three of one kind, else those of all engines. Then the nearest number
of ranks comes first (by how often it doubles), then the type of the weights, then the load (by
classes), and last whether the model is among them. Groups of fewer than three runs count only where
there is no larger one on that accelerator. Each metric has its own nearest group, because not every
published run has every metric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .table import ALL, LOADS, METRICS, PRECISIONS, Error, Group

_ENOUGH = 3
_MOST_QUEUEING = 0.5
_ENGINES = ("vllm", "sglang", "trtllm")  # of the published runs


@dataclass(frozen=True, slots=True)
class Asked:
    """The run of which an error is expected. engine: name of its profile. queueing: the part of the
    time to first token that its requests wait in the queue."""

    times: str
    hardware: str
    engine: str
    model: str
    ranks: int
    precision: str
    load: str
    queueing: float = 0.0

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
    and `missing` says what was never judged: `times`, `engine` or `hardware`."""

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
