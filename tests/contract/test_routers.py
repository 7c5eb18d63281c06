"""Every router: it chooses a replica whatever it is told, the same one each time, and it forgets
what has ended. Every admission order serves everybody, in an order told again over plain lists."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache import registry
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from sim.options import RouterOptions
from sim.routers import ROUTERS, PrefixAware, Router, router_of
from sim.schedulers import Scheduler, make
from sim.workload import Job

NAMES = list(ROUTERS)
PAGE = 4


def test_an_unknown_router_is_refused() -> None:
    with pytest.raises(CallerError, match="expected one of"):
        router_of("nearest")


def digests(request: int, pages: int) -> list[bytes]:
    """Three prompts share their first two pages."""
    return [f"{request // 3 if page < 2 else request}-{page}".encode() for page in range(pages)]


def ask(router: Router, request: int, pages: int = 4, session: int = -1) -> int:
    job = Job(request, 0, pages * PAGE + 1, 1, session=session)
    return router.choose(job, lambda: digests(request, pages))


def drawn(name: str, replicas: int, texts: list[tuple[str, int, int]]) -> list[int]:
    """The choices of a router that hears these events."""
    router = router_of(name)(replicas, PAGE, RouterOptions(name, Fraction(1, 2)))
    chosen: list[int] = []
    left: list[int] = []
    for kind, number, pages in texts:
        if kind == "ask":
            left.append(len(chosen))
            chosen.append(ask(router, len(chosen), pages, number - 1))
        elif kind == "stored":
            tier = Tier(number % 3)
            router.stored(number % replicas, tier, digests(number, pages))
        elif kind == "removed":
            router.removed(number % replicas, Tier(number % 3), digests(number, pages))
        elif left:
            request = left[number % len(left)]
            router.loads.answer(request)
            if kind == "ended":
                left.remove(request)
                router.loads.end(request)
    for request in left:
        router.loads.end(request)
    assert router.loads.waiting == router.loads.kv_tokens == [0] * replicas
    return chosen


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "ask", "stored", "removed", "answered", "ended"]),
            st.integers(0, 12),
            st.integers(1, 6),
        ),
        max_size=60,
    ),
)
def test_a_router_chooses_a_replica_and_forgets_what_has_ended(
    name: str, replicas: int, texts: list[tuple[str, int, int]]
) -> None:
    chosen = drawn(name, replicas, texts)
    assert all(0 <= place < replicas for place in chosen)
    assert chosen == drawn(name, replicas, texts)


def test_prefix_aware_costs_what_its_formula_says() -> None:
    """cost = weight x (waiting + not cached) + held, in tokens."""
    router = PrefixAware(3, PAGE, RouterOptions(overlap_weight=Fraction(2)))
    assert [ask(router, 90 + 3 * number) for number in range(3)] == [0, 1, 2]
    router.loads.end(93)
    # 17 tokens: replica 0 costs 2 x 34 + 17, replica 1 nothing but this one
    assert ask(router, 0) == 1
    for request in (90, 96, 0):
        router.loads.end(request)
    router.stored(2, Tier.HOST, digests(4, 2))
    router.stored(0, Tier.DEVICE, digests(4, 1))
    assert ask(router, 4) == 2  # two pages of four, one on replica 0
    # on 2: 2 x (9 + 9) + 17 = 53; on 0: 2 x 13 = 26; on 1: 2 x 17 = 34
    assert ask(router, 5) == 0
    router.loads.answer(4)
    # on 2: 2 x 9 + 17 = 35; on 0: 2 x (13 + 13) + 17; on 1: 34
    assert ask(router, 3) == 1
    router.removed(2, Tier.HOST, digests(4, 2))
    router.loads.end(4)
    assert ask(router, 3 + 90) == 2


ORDERS = registry.names(registry.SCHEDULERS)
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


@pytest.mark.parametrize("name", ORDERS)
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
