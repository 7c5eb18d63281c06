"""Judges of the admission orders and of the digest of a run.

Orders are compared with a plain list and its rule, the digest with its definition. Does not judge
engines (see runs).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest

from hicache import registry
from hicache.core.actions import Evicted
from hicache.runtime.encoding import add_words
from sim.schedulers.base import Scheduler, make
from sim.workload import Job
from tests.contract.contracts.schedulers import wrong

from .cases import drawn
from .found_out import refused
from .runs import world_of
from .second_rules import Line

_ORDERS = ("fcfs", "longest-prefix", "priority")


class _Waiting:
    """A request in a queue."""

    def __init__(self, index: int, seed: int) -> None:
        self.job = Job(index, index, 1 + index % 5, 1, -1, index % 4 - 1, (index * seed) % 3)
        self.length, self.arrival_ns, self.retractions = index * seed % 7, index, 0


def test_orders_are_plain() -> None:
    """Each order serves as a plain list with its rule does."""
    assert {*_ORDERS} <= {*registry.names(registry.SCHEDULERS)}
    for name in _ORDERS:
        assert not wrong(registry.load(registry.SCHEDULERS, name).scheduler)
        for seed in range(1, 6):
            for window in (1, 3):
                _same_order(make(name, window), Line(name, window), seed)
    refused(lambda: make("lifo", 1), "schedulers: expected one of ")
    try:
        Scheduler[Any]().best(lambda _: 0)
    except NotImplementedError:
        return
    raise AssertionError("the base class has no order")


def _same_order(real: Scheduler[Any], plain: Line, seed: int) -> None:
    coming = [_Waiting(index, seed) for index in range(20)]
    back: list[Any] = []
    for turn in range(60):
        for one in coming[:1]:
            real.push(one)
            plain.push(one)
        coming = coming[1:]
        assert len(real) == len(plain.waiting)
        if turn * seed % 5 == 1 and back:
            one = back.pop()
            real.push_front(one)
            plain.push_front(one)
        if len(real) and turn * seed % 3:
            asked: tuple[list[Any], list[Any]] = ([], [])
            best = real.best(lambda one, to=asked[0]: to.append(one) or one.length)  # type: ignore[misc]
            same: Any = plain.best(lambda one, to=asked[1]: to.append(one) or one.length)  # type: ignore[misc]
            assert best is same, f"{plain.order}: {best.job.index}, expected {same.job.index}"
            assert asked[0] == asked[1], "another number of requests was asked about"
            real.remove(best)
            plain.remove(best)
            back.append(best)


@pytest.mark.one_in(8)
def test_digests_are_as_defined() -> None:
    """The digest is of every time, event and outcome; events and evicted pages are counted."""
    for seed in (1, 13, 17):
        case, noted = drawn(seed), _Words()
        world = world_of(
            case,
            observers=(noted,),
        )
        noted.now_ns = lambda world=world: world.clock.now_ns  # type: ignore[misc]
        result = world.run()
        digest = blake2b(noted.words.tobytes(), digest_size=16).hexdigest()
        assert (result.digest, result.core_events) == (digest, noted.events)
        for name, device, host in result.evicted:
            assert (device, host) == (noted.evicted["DEVICE", name], noted.evicted["HOST", name])
        names = [name for name, _, _ in result.evicted]
        assert names == list(case.config.components)


class _Words:
    """Notes the numbers that a digest is of."""

    def __init__(self) -> None:
        self.words, self.events = array("q"), 0
        self.evicted: Counter[tuple[str, str]] = Counter()
        self.now_ns: Callable[[], int] = lambda: 0

    def on_event(self, event: Any, view: Any) -> None:
        self.events += 1

    def on_outcomes(self, event: Any, outcomes: Any, view: Any) -> None:
        self.words.append(self.now_ns())
        add_words(self.words, event, outcomes)
        for one in outcomes:
            if isinstance(one, Evicted):
                self.evicted[one.tier.name, one.component] += len(one.pages)
