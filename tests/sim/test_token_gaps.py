"""The times between tokens, which are kept by ranges of steps, equal those of an engine that notes
every token. The cases have requests that wait for pages and requests that are preempted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
