"""The one-pass LRU curve against an LRU cache that is simulated capacity by capacity."""

from __future__ import annotations

from hypothesis import given, settings

from traces.replaying.curve import lru_curve

from .reference import random_traces, simulate_lru
from .rig import read


@settings(max_examples=60, deadline=None)
@given(random_traces())
def test_curve_equals_simulation(records: list[dict[str, object]]) -> None:
    paged = read(*records).paged(512)
    curve = lru_curve(paged)
    largest = max(len(paged.chain(job)) for job in paged.jobs)
    assert curve.largest == largest
    for capacity in range(largest, curve.unique + 2):
        assert curve.hit_tokens(capacity) == sum(simulate_lru(paged, capacity))
