"""The one-pass LRU curve against an LRU cache that is simulated capacity by capacity."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.replaying import curve as curves
from traces.replaying.curve import lru_curve

from .reference import random_traces, simulate_lru
from .rig import read


@settings(max_examples=90, deadline=None)
@given(random_traces(), st.sampled_from([0, 5, 1 << 10]))
def test_curve_equals_simulation(records: list[dict[str, object]], batch_uses: int) -> None:
    """In batches of one request, of a few requests, and of the whole trace."""
    paged = read(*records).paged(512)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "_BATCH_USES", batch_uses)
        curve = lru_curve(paged)
    largest = max(len(paged.chain(job)) for job in paged.jobs)
    assert curve.largest == largest
    for capacity in range(largest, curve.unique + 2):
        assert curve.hit_tokens(capacity) == sum(simulate_lru(paged, capacity))
