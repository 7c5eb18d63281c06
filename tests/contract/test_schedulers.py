"""Every admission order in sim/schedulers serves everybody, and in its own order, told again over
plain lists."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache import registry
from sim.schedulers import Scheduler, make
from sim.workload import Job

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


# What each order is, over (index, session, priority, length) in order of arrival: a request that
# was retracted stands before the others of its kind.

Rule = Callable[[list[Request]], Request]
RULES: dict[str, Rule] = {
    "fcfs": lambda line: line[0],
    "longest-prefix": lambda line: max(line[:WINDOW], key=lambda item: item.length),
    "priority": lambda line: max(line, key=lambda item: item.job.priority),
}


@pytest.mark.parametrize("name", NAMES)
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
    """A tuple: a request arrives. None: the best is admitted. "back": it is retracted at once."""
    scheduler: Scheduler[Request] = make(name, WINDOW)
    line: list[Request] = []
    for index, step in enumerate([*steps, *[None] * len(steps)]):
        if isinstance(step, tuple):
            session, priority, length = step
            arrived = request(index, session, priority, length)
            scheduler.push(arrived)
            line.append(arrived)
        elif line:
            best = scheduler.best(lambda item: item.length)
            assert best is RULES[name](line)
            scheduler.remove(best)
            line.remove(best)
            if step == "back":
                scheduler.push_front(best)
                line.insert(0, best)
        assert len(scheduler) == len(line)
        assert {id(waiting) for waiting in scheduler.requests()} == set(map(id, line))
    assert not line
