"""Counting all decoding sequences at once equals counting each token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.decode import DecodeSet
from sim.engine.sequence import Sequence
from sim.engine.token_gaps import TokenGaps
from sim.workload import Job

SIZE = 4


@pytest.mark.one_in(16)
@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 3), st.integers(0, 9)),
        max_size=8,
    )
)
def test_counters_equal_a_token_by_token_model(rows: list[tuple[int, int, int, int]]) -> None:
    """Rows: held at the start, tokens to make, spare pages, the step at which it joins."""
    decode = DecodeSet(TokenGaps(lambda: 0))
    made: dict[int, int] = {}
    held: dict[int, int] = {}
    room: dict[int, int] = {}
    ended: list[int] = []
    for step in range(60):
        for index, (start, outputs, spare, joins) in enumerate(rows):
            if joins == step:
                job = Job(index, 0, start, outputs + 1)
                sequence = Sequence(job, outputs + 1, start, 0, generated=1, held=start)
                sequence.table = np.arange(-(-start // SIZE) + spare)
                made[index], held[index], room[index] = 1, start, len(sequence.table) * SIZE
                decode.join(sequence, SIZE)
        while (sequence := decode.pop_ended() or decode.pop_full()) is not None:
            index = sequence.job.index
            assert (sequence.held, sequence.generated) == (held[index], made[index])
            if sequence.generated == sequence.outputs:
                ended.append(index)
                del held[index]
                continue
            assert held[index] == room[index], "neither at its end nor out of pages"
            sequence.table = np.arange(len(sequence.table) + 1)
            room[index] += SIZE
            decode.join(sequence, SIZE)
        assert len(decode) == len(held)
        assert decode.context == sum(held.values()) + len(held)
        due = [min(room[i] - held[i], rows[i][1] + 1 - made[i]) for i in held]
        assert decode.quiet_steps() == min(due, default=-1)
        decode.steps += 1
        for index in held:
            held[index] += 1
            made[index] += 1
    assert sorted(ended) == list(range(len(rows)))


def test_a_due_step_from_before_a_retraction_is_ignored() -> None:
    """It was to end at step 3; it left, and its table is full at step 3 instead."""
    decode = DecodeSet(TokenGaps(lambda: 0))
    sequence = Sequence(Job(0, 0, 4, 4), 4, 4, 0, generated=1, held=4, table=np.arange(3))
    decode.join(sequence, SIZE)
    decode.steps = 1
    decode.leave(sequence)
    sequence.table, sequence.outputs = np.arange(2), 9
    sequence.held = 6
    decode.join(sequence, SIZE)
    decode.steps = 3
    assert decode.pop_ended() is None
    assert decode.pop_full() is sequence
    assert (sequence.held, sequence.generated) == (8, 4)
