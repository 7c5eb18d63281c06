"""The simulator judged like the core: theory where it is exact, and everything written twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

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
