"""The simulator judged like the core: theory where it is exact, and everything written twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sim.engine.engine import Engine
from sim.engine.prefill import Prefills
from sim.engine.sequence import Sequence

from . import judged_roofline, queueing
from .cases import crowded, drawn, profiled
from .runs import Case, agree

# In 130 a request restarts that has had its first token; in 37 a preempted one would come back at
# once, for ever.
_CASES = {drawn: (*range(8), 130), crowded: (3, 9), profiled: (*range(8), 37)}


@pytest.mark.parametrize(
    "case",
    [partial(make, seed) for make, seeds in _CASES.items() for seed in seeds],
    ids=lambda one: f"{one.func.__name__} {one.args[0]}",
)
def test_both_engines_agree(case: Callable[[], Case]) -> None:
    agree(case())


@pytest.mark.parametrize("judge", judged_roofline.JUDGES, ids=lambda one: one.__name__)
def test_what_is_known_of_the_roofline_holds(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.parametrize("judge", queueing.JUDGES, ids=lambda one: one.__name__)
def test_what_theory_says_of_queues_holds(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_the_mean_wait_is_that_of_theory(load: float) -> None:
    """M/D/1, Pollaczek and Khinchine, within 4 standard errors of the mean (see `mean_wait`)."""
    mean = queueing.mean_wait(load, 1500, seed=1)
    assert abs(mean.found - mean.theory) <= mean.bound
    assert mean.bound < 0.3 * mean.theory


def _late_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time to first token begins at admission: the queue is gone from every account."""
    add = Prefills._add

    def late(self: Prefills, sequence: Sequence, outcomes: Any) -> None:
        add(self, sequence, outcomes)
        sequence.arrival_ns = sequence.admit_ns

    monkeypatch.setattr(Prefills, "_add", late)


def _newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    arrive = Engine.arrive

    def pushed(self: Engine, job: Any) -> None:
        arrive(self, job)
        queue = self._waiting.queue
        queue.appendleft(queue.pop())

    monkeypatch.setattr(Engine, "arrive", pushed)


def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass takes half of the tokens that it may."""
    made = Prefills.__init__

    def half(self: Prefills, running: Any, workload: Any, platform: Any, options: Any) -> None:
        made(self, running, workload, platform, options)
        budget = max(workload.page_size, options.token_budget // 2)
        self._options = replace(options, token_budget=budget)

    monkeypatch.setattr(Prefills, "__init__", half)


@pytest.mark.parametrize("spoil", [_late_arrival, _newest_first, _small_batches])
def test_a_wrong_engine_is_found_out(spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    with pytest.raises(AssertionError):
        _agree_in_order()


def _agree_in_order() -> None:
    for seed in range(8):
        case = drawn(seed)
        agree(replace(case, engine=replace(case.engine, order="fcfs")))


def test_a_late_arrival_contradicts_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    _late_arrival(monkeypatch)
    with pytest.raises(AssertionError, match="expected to wait"):
        queueing.arrivals_are_random()
