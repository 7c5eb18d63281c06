"""The times between tokens, which are kept by ranges of steps, equal those of an engine that notes
every token. The cases have requests that wait for pages and requests that are preempted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.engine.sequence import Sequence
from sim.engine.token_gaps import TokenGaps
from tests.sim.judged.cases import crowded, drawn
from tests.sim.judged.runs import agree

CASES = (*(crowded(seed) for seed in (22, 49, 53)), drawn(13))


@pytest.mark.parametrize("case", CASES)
def test_gaps_equal_those_of_the_second_engine_and_add_up(case: Any) -> None:
    result = agree(case)
    (gaps,) = result.gaps
    for one in result.requests:
        times, counts = gaps.weighted(np.array([one.request]))
        assert int(counts.sum()) == max(1, one.output_length) - 1
        assert int((times * counts).sum()) == one.finish_ns - one.first_token_ns


@pytest.mark.parametrize("lost", ["waits", "tokens of prefills", "ranges"])
def test_gaps_that_are_lost_are_found(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    join, sampled = TokenGaps.join, TokenGaps.sampled

    def without_waits(self: TokenGaps, sequence: Sequence, step: int) -> None:
        join(self, sequence, step)
        sequence.range_waited_ns = 0

    def without_tokens(self: TokenGaps, sequence: Sequence) -> None:
        sequence.token_ns = -1
        sampled(self, sequence)

    def as_if_it_went_on(self: TokenGaps, sequence: Sequence, step: int) -> None:
        first, waited = sequence.range_first, sequence.range_waited_ns
        if first < 0:
            join(self, sequence, step)
        else:
            sequence.range_first, sequence.range_waited_ns = first, waited

    wrong: dict[str, tuple[str, Any]] = {
        "waits": ("join", without_waits),
        "tokens of prefills": ("sampled", without_tokens),
        "ranges": ("join", as_if_it_went_on),
    }
    monkeypatch.setattr(TokenGaps, *wrong[lost])
    with pytest.raises(AssertionError):
        _all_agree()


def _all_agree() -> None:
    for case in CASES:
        agree(case)
