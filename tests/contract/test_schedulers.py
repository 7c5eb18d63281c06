"""Every admission order in sim/schedulers: it keeps the contract, serves everybody, and in its own
order, told again over plain lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache import registry
from sim.options import EngineOptions
from sim.schedulers.base import Scheduler, make
from sim.workload import Job
from tests.contract.contracts.schedulers import wrong
from tests.sim.workloads import shared_prefixes

from ..sim.rig import run

NAMES = registry.names(registry.SCHEDULERS)
WINDOW = 3


@dataclass(eq=False)
class Request:
    job: Job
    length: int = 1
    arrival_ns: int = 0
    retractions: int = 0


def request(index: int, session: int = -1, priority: int = 0, length: int = 1) -> Request:
    return Request(Job(index, 0, length, 1, -1, session, priority), length)


@pytest.mark.parametrize("name", NAMES)
def test_an_order_keeps_the_contract(name: str) -> None:
    assert wrong(registry.load(registry.SCHEDULERS, name).scheduler) == ""


@pytest.mark.parametrize("name", NAMES)
def test_an_order_lists_what_waits(name: str) -> None:
    line = registry.load(registry.SCHEDULERS, name).scheduler(WINDOW)
    waiting = [request(index, session=index % 2, priority=index % 3) for index in range(5)]
    for one in waiting[1:]:
        line.push(one)
    line.push_front(waiting[0])
    assert sorted(one.job.index for one in line.requests()) == list(range(5))


@pytest.mark.parametrize("name", NAMES)
def test_every_order_serves_every_request(name: str) -> None:
    workload = shared_prefixes(3, 24)
    workload.jobs = [
        replace(job, session=job.index % 3 - 1, priority=job.index % 4) for job in workload.jobs
    ]
    found = run(workload, engine=EngineOptions(order=name, max_running=3))
    assert [one.request for one in found.requests] == list(range(24))


# What each order is, over (index, session, priority, length) in order of arrival: a request that
# was preempted stands before the others of its kind.

Rule = Callable[[list[Request]], Request]
RULES: dict[str, Rule] = {
    "fcfs": lambda line: line[0],
    "longest-prefix": lambda line: max(line[:WINDOW], key=lambda one: one.length),
    "priority": lambda line: max(line, key=lambda one: one.job.priority),
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", RULES)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 2), st.integers(-2, 2), st.integers(1, 4)),
            st.just(None),
            st.just("back"),
        ),
        max_size=40,
    )
)
def test_an_order_follows_its_rule(name: str, steps: list[Any]) -> None:
    """A tuple: a request arrives. None: the best is admitted. "back": it is preempted at once."""
    scheduler: Scheduler[Request] = make(name, WINDOW)
    line: list[Request] = []
    for index, step in enumerate([*steps, *[None] * len(steps)]):
        if isinstance(step, tuple):
            session, priority, length = step
            arrived = request(index, session, priority, length)
            scheduler.push(arrived)
            line.append(arrived)
        elif line:
            best = scheduler.best(lambda one: one.length)
            assert best is RULES[name](line)
            scheduler.remove(best)
            line.remove(best)
            if step == "back":
                scheduler.push_front(best)
                line.insert(0, best)
        assert len(scheduler) == len(line)
    assert not line


class Broken:
    """A queue that forgets: the contract says what is wrong with it."""

    def __init__(self, window: int) -> None:
        self.queue: list[Any] = []

    def __len__(self) -> int:
        return len(self.queue)

    def push(self, one: Any) -> None:
        self.queue.append(one)

    push_front = push

    def best(self, reusable: Any) -> Any:
        return self.queue[0]

    def remove(self, one: Any) -> None:
        self.queue.remove(one)


class Forgets(Broken):
    def push_front(self, one: Any) -> None:
        """It is lost."""


class Strange(Broken):
    def best(self, reusable: Any) -> Any:
        return request(99)


class Doubles(Broken):
    def remove(self, one: Any) -> None:
        """It stays."""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Broken, ""),
        (Forgets, "a length of"),
        (Strange, "best to name"),
        (Doubles, "a length of"),
        (type("Mute", (Broken,), {"best": None}), "a method best"),
    ],
)
def test_a_broken_contract_is_reported(made: Any, words: str) -> None:
    found = wrong(made)
    assert words in found
    assert bool(found) == bool(words)
