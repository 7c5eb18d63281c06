"""`hits` mode through the real core against the naive reference, tier by tier."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from traces.replaying.account import ceiling_of

from .reference import random_traces, simulate_lru
from .rig import read, replay_hits


@settings(max_examples=80, deadline=None)
@given(random_traces(), st.integers(0, 12))
def test_one_tier_hits_as_lru(records: list[dict[str, object]], spare: int) -> None:
    paged = read(*records).paged(512)
    capacity = max(len(paged.chain(job)) for job in paged.jobs) + spare
    account, core, _ = replay_hits(paged, capacity)
    expected = simulate_lru(paged, capacity)
    assert [account.hit_tokens([job.index])[0] for job in paged.jobs] == expected
    assert not core.view.requests
    assert not core.view.flights


@settings(max_examples=80, deadline=None)
@given(random_traces(), st.integers(0, 6), st.integers(1, 12))
def test_two_tiers_hit_like_one_of_the_larger_size(
    records: list[dict[str, object]], spare: int, more: int
) -> None:
    """Inclusive tiers: device hits are LRU(C1), device and host together LRU(C2)."""
    paged = read(*records).paged(512)
    small = max(len(paged.chain(job)) for job in paged.jobs) + spare
    account, _, _ = replay_hits(paged, small, host=small + more)
    device, both = simulate_lru(paged, small), simulate_lru(paged, small + more)
    whole = account.whole()
    assert (whole.hit_tokens.device, whole.hit_tokens.all) == (sum(device), sum(both))


@settings(max_examples=40, deadline=None)
@given(random_traces(), st.sampled_from([1, 16, 64, 256, 512]))
def test_unbounded_reaches_the_ceiling_at_every_page_size(
    records: list[dict[str, object]], size: int
) -> None:
    paged = read(*records).paged(size)
    pages = sum(len(paged.chain(job)) for job in paged.jobs)
    account, _, _ = replay_hits(paged, pages)
    whole = account.whole()
    assert whole.hit_tokens.all == int(ceiling_of(paged, whole_prompts=True).sum())
    assert whole.lost_tokens == 0
    assert whole.hit_tokens.all + whole.computed_tokens == whole.input_tokens


@settings(max_examples=30, deadline=None)
@given(random_traces(), st.sampled_from(["write_back", "write_through_selective"]))
def test_other_write_policies_serve_every_request(
    records: list[dict[str, object]], policy: str
) -> None:
    """Draining evictions delay a request, never for ever; device hits stay those of LRU."""
    paged = read(*records).paged(512)
    capacity = max(len(paged.chain(job)) for job in paged.jobs)
    account, core, _ = replay_hits(paged, capacity, host=capacity + 2, policy=policy)
    assert account.whole().requests == len(paged.jobs)
    assert account.whole().hit_tokens.device == sum(simulate_lru(paged, capacity))
    assert not core.view.flights
