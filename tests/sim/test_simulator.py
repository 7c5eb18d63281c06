"""The engine and the one that was written a second time agree on drawn workloads."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.engine.decode import DecodeSet
from sim.engine.reserves import Estimated
from sim.engine.sequence import Sequence
from sim.engine.token_gaps import TokenGaps
from sim.engine_profiles.base import EngineProfile
from sim.workload import Job

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


def test_a_reserve_after_a_retraction_has_some_steps_for_each_request() -> None:
    found = Estimated(1000)
    admitted = {number: SimpleNamespace(outputs=1000) for number in range(3)}
    held: Any = SimpleNamespace(admitted=admitted, left=lambda one: 900)
    found.retracted(held)
    assert found._part == (3 * 100 + 3 * 20) * 1_000_000 // 3001


def test_a_due_step_from_before_a_retraction_is_ignored() -> None:
    """It was to end at step 3; it left, and its table is full at step 3 instead."""
    decode = DecodeSet(TokenGaps(lambda: 0))
    sequence = Sequence(Job(0, 0, 4, 4), 4, 4, 0, generated=1, held=4, table=np.arange(3))
    decode.join(sequence, 4)
    decode.steps = 1
    decode.leave(sequence)
    sequence.table, sequence.outputs, sequence.held = np.arange(2), 9, 6
    decode.join(sequence, 4)
    decode.steps = 3
    assert decode.pop_ended() is None
    assert decode.pop_full() is sequence
    assert (sequence.held, sequence.generated) == (8, 4)
