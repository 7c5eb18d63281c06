"""The engine and the one that was written a second time agree on drawn workloads."""

from __future__ import annotations

from functools import partial

import pytest

from sim.engine.reserves import Estimated
from sim.engine_profiles.base import EngineProfile

from .cases import crowded, drawn, profiled
from .runs import Case, agree
from .second_rules import Room

# In 130 a request restarts that has had its first token; in 37 a preempted one would come back at
# once, for ever; in 13, 22, 49 and 53 requests wait for pages between two tokens; in 151 the
# estimated reserve meets preemptions.
_CASES = {
    drawn: (*range(24), 130),
    crowded: (0, 2, 9, 22, 49, 53),
    profiled: (*range(12), 37, 41, 62, 88, 151),
}


@pytest.mark.parametrize(
    "case",
    [partial(make, seed) for make, seeds in _CASES.items() for seed in seeds],
    ids=lambda one: f"{one.func.__name__} {one.args[0]}",
)
def test_both_engines_agree(case: partial[Case]) -> None:
    result = agree(case())
    assert case.func is not crowded or sum(one.retractions for one in result.requests) > 0


def test_an_estimated_reserve_falls_with_each_of_several_steps() -> None:
    found, plain = Estimated(700), Room(EngineProfile("", reserve_permille=700), 1)
    found.decoded(40)
    for _ in range(40):
        plain.step()
    assert found._part == plain.part
