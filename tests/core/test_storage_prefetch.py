"""Prefetches from arrival to the fetch: what is looked up, who joins, what limits it, what it
locks, and how a request stops waiting."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    Abandoned,
    Admitted,
    Evicted,
    Fetch,
    Lookup,
    Outcome,
    Prefetched,
    Refused,
    Released,
)
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    FetchDone,
    Flushed,
    LookupDone,
    PrefetchLimitReached,
)
from hicache.core.types import PageState, Tier

from .recount import recount
from .rig import PAGE, Rig, hybrid, key, states, windows


def end_of(outcomes: list[Outcome], request: int = 1) -> Prefetched:
    (found,) = (one for one in outcomes if isinstance(one, Prefetched) and one.request == request)
    return found


def storage(device: int = 16, host: int = 16, **settings: object) -> Rig:
    return Rig(device, host, storage=True, **settings)


def without_a_state() -> Rig:
    """The tree has the backbone of abcd, and the state at its end was evicted from both tiers."""
    rig = states(device=(16, 8), host=(16, 4), storage=True)
    rig.run(0, "abcd")
    rig.run(9, "abcdxy")
    rig.evict("mamba", 1)
    rig.evict("mamba", 1, Tier.HOST)
    assert rig.residency() == {"abcd": "DH/-", "abcdxy": "DH/DH"}
    return rig


def test_an_arrival_looks_up_what_the_tree_lacks() -> None:
    rig = storage()
    rig.run(0, "abc")
    lookup = rig.lookup(1, "abcdef")
    assert (lookup.request, lookup.first_page, lookup.known_pages) == (1, 3, 0)
    assert lookup.digests == tuple(key("abcdef").page_digests()[3:])
    assert lookup.trailing_pages == (0,)
    assert rig.view.requests[1].prefetch == lookup.flight
    assert rig.view.prefetching_tokens == 3 * PAGE
    recount(rig.view)


def test_the_digests_of_another_namespace_differ() -> None:
    rig = storage()
    one = rig.one(Lookup, rig.arrive(1, "ab", "x"))
    other = rig.one(Lookup, rig.arrive(2, "ab", "y"))
    assert not {*one.digests} & {*other.digests}


def test_a_hybrid_says_what_the_backbone_needs_not_be_asked_for() -> None:
    rig = without_a_state()
    lookup = rig.lookup(1, "abcdef")
    assert (lookup.first_page, lookup.known_pages, len(lookup.digests)) == (0, 4, 6)
    assert lookup.trailing_pages == (0, 1)
    rig = windows(storage=True, host=(8, 8))
    assert rig.lookup(1, "ab").trailing_pages == (0, 2)
    rig = hybrid("full,swa,mamba", (8, 8, 8), (8, 8, 8), storage=True)
    assert rig.lookup(1, "ab").trailing_pages == (0, 2, 1)


def test_nothing_is_said_when_nothing_is_missing() -> None:
    rig = storage()
    rig.run(0, "abc")
    assert len(rig.arrive(1, "abc")) == 1
    assert len(rig.arrive(2, "abcd", match_pages=3)) == 1


def test_pages_that_may_not_be_reused_are_not_looked_up() -> None:
    rig = storage()
    outcomes = rig.arrive(1, "abcd", match_pages=3)
    assert len(rig.one(Lookup, outcomes).digests) == 3
    short = rig.feed(Aborted(1))
    assert [type(one) for one in short] == [Abandoned, Released]


@pytest.mark.parametrize(("threshold", "begins"), [(3 * PAGE, True), (3 * PAGE + 1, False)])
def test_short_prefetches_are_not_begun(threshold: int, begins: bool) -> None:
    rig = storage(prefetch_threshold_tokens=threshold)
    outcomes = rig.arrive(1, "abc")
    assert any(isinstance(one, Lookup) for one in outcomes) == begins
    if not begins:
        assert end_of(outcomes) == Prefetched(1, 0, 3, 0, 0, "too_short")


def test_without_storage_no_prefetch_begins() -> None:
    rig = Rig(8, 8)
    assert len(rig.arrive(1, "abc")) == 1


def test_a_hybrid_with_a_component_that_is_never_on_host_has_no_boundary_there() -> None:
    rig = windows(device=(16, 8), host=(16, 0), storage=True)
    assert end_of(rig.arrive(1, "abc")) == Prefetched(1, 0, 3, 0, 0, "no_host_pages")


@pytest.mark.parametrize("pages", [0, 2])
def test_a_lookup_that_finds_too_little_evicts_nothing(pages: int) -> None:
    rig = storage(device=8, host=4, prefetch_threshold_tokens=3 * PAGE)
    rig.run(0, "wxyz")
    lookup = rig.lookup(1, "abcd")
    outcomes = rig.feed(LookupDone(lookup.flight, pages))
    assert outcomes == [Prefetched(1, 0, 4, pages, 0, "too_short" if pages else "miss")]
    assert rig.view.requests[1].prefetch == 0
    assert rig.view.prefetching_tokens == 0
    assert rig.residency() == {"wxyz": "DH"}


def test_a_fetch_reserves_host_pages_and_evicts_for_them() -> None:
    rig = storage(device=8, host=4)
    rig.run(0, "wxyz")
    lookup = rig.lookup(1, "abcd")
    outcomes = rig.feed(LookupDone(lookup.flight, 3))
    assert [type(one) for one in outcomes] == [Evicted, Fetch]
    fetch = rig.one(Fetch, outcomes)
    assert (fetch.first_page, fetch.pages, fetch.request) == (0, 3, 1)
    (piece,) = fetch.pieces
    assert (piece.component, piece.first_page, piece.digests) == ("full", 0, lookup.digests[:3])
    assert rig.host.counts[PageState.LENT] == 3
    assert rig.view.requests[1].prefetch == fetch.flight
    assert rig.view.prefetching_tokens == 3 * PAGE
    recount(rig.view)


def test_full_attention_fetches_as_much_as_host_has_room_for() -> None:
    rig = storage(device=8, host=4)
    rig.run(0, "ab")
    lookup = rig.lookup(1, "abcdef")
    fetch = rig.fetch(lookup, 4)
    assert (fetch.first_page, fetch.pages) == (2, 2)
    assert rig.view.prefetching_tokens == 2 * PAGE
    outcomes = rig.feed(FetchDone(fetch.flight, 2))
    assert end_of(outcomes) == Prefetched(1, 2, 4, 4, 2, "")
    assert rig.residency() == {"ab": "DH", "abcd": "H"}


def test_what_is_left_of_the_room_may_be_less_than_the_threshold() -> None:
    rig = storage(device=8, host=4, prefetch_threshold_tokens=3 * PAGE)
    rig.run(0, "ab")
    lookup = rig.lookup(1, "abcdef")
    (end,) = rig.feed(LookupDone(lookup.flight, 4))
    assert end == Prefetched(1, 2, 4, 4, 0, "no_host_pages")
    assert rig.view.storage_flights == {}
    assert rig.host.protected == 0
    assert rig.lookup(2, "abcxyz").flight == lookup.flight + 1, "no flight was opened for it"


def test_a_hybrid_fetches_everything_or_nothing() -> None:
    rig = windows(device=(16, 8), host=(16, 1), storage=True)
    lookup = rig.lookup(1, "abcd")
    assert end_of(rig.feed(LookupDone(lookup.flight, 4))).reason == "no_host_pages"
    assert rig.host.counts[PageState.LENT] == 0


def test_host_pages_that_are_kept_for_exchanges_are_not_taken() -> None:
    rig = storage(device=8, host=6, write_policy="write_back", exchange_pages=(2,))
    fetch = rig.fetch(rig.lookup(1, "abcdef"), 6)
    assert fetch.pages == 4
    assert rig.host.free == 2


def test_only_the_missing_pages_of_a_hybrid_are_fetched() -> None:
    rig = without_a_state()
    lookup = rig.lookup(1, "abcdef")
    fetch = rig.fetch(lookup, 4)
    assert [(one.component, one.first_page, len(one.pages)) for one in fetch.pieces] == [
        ("mamba", 3, 1)
    ]
    assert fetch.pieces[0].digests == (lookup.digests[3],)
    assert fetch.pages == 4
    assert end_of(rig.feed(FetchDone(fetch.flight, 4))) == Prefetched(1, 0, 6, 4, 4, "")
    assert rig.residency() == {"abcd": "DH/H", "abcdxy": "DH/DH"}
    assert rig.look("abcdef").host_pages == 4
    recount(rig.view)


def test_a_prefix_that_was_evicted_meanwhile_makes_the_lookup_a_miss() -> None:
    rig = storage(device=8, host=8)
    rig.run(0, "ab")
    lookup = rig.lookup(1, "abcd")
    rig.evict("full", 8)
    rig.evict("full", 8, Tier.HOST)
    (end,) = rig.feed(LookupDone(lookup.flight, 2))
    assert end == Prefetched(1, 2, 2, 2, 0, "miss")


def test_an_abandoned_lookup_is_not_joined() -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    rig.feed(Aborted(1))
    again = rig.lookup(2, "abcd")
    assert rig.feed(LookupDone(lookup.flight, 4)) == []
    assert rig.fetch(again, 4).request == 2


def test_nothing_is_fetched_when_everything_is_there() -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    rig.arrive(2, "abcde")
    rig.feed(PrefetchLimitReached(2))
    rig.settle(rig.admit(2))
    rig.settle(rig.finish(2))
    outcomes = rig.feed(LookupDone(lookup.flight, 4))
    assert outcomes == [Prefetched(1, 0, 4, 4, 0, "")]


def test_a_contiguous_policy_fetches_nothing_below_a_prefix_that_is_not_on_host() -> None:
    rig = storage(device=16, host=16, write_policy="write_through_selective")
    rig.run(0, "ab")
    assert rig.residency() == {"ab": "D"}
    lookup = rig.lookup(1, "abcd")
    (end,) = rig.feed(LookupDone(lookup.flight, 2))
    assert end == Prefetched(1, 2, 2, 2, 0, "no_host_pages")


def test_a_backup_under_way_counts_as_a_prefix_on_host() -> None:
    rig = storage(write_policy="write_through_selective")
    rig.run(0, "ab")
    rig.arrive(2, "ab")
    backup = rig.settle_passes(rig.admit(2))[-1]
    lookup = rig.lookup(1, "abcd")
    assert isinstance(rig.feed(LookupDone(lookup.flight, 2))[0], Fetch)
    rig.settle([backup])
    recount(rig.view)


def test_a_fetch_locks_the_host_copies_of_its_path() -> None:
    rig = storage(device=8, host=8)
    rig.run(0, "abc")
    fetch = rig.fetch(rig.lookup(1, "abcde"), 2)
    assert rig.host.protected == 3
    assert rig.evict("full", 8, Tier.HOST) == []
    rig.feed(FetchDone(fetch.flight, 0))
    assert rig.host.protected == 0


def test_a_node_that_is_known_in_part_is_locked_and_not_split() -> None:
    rig = storage(device=8, host=12)
    rig.run(0, "abcd")
    fetch = rig.fetch(rig.lookup(1, "abxyz"), 3)
    assert rig.residency() == {"abcd": "DH"}
    assert (fetch.first_page, rig.host.protected) == (2, 4)
    rig.feed(FetchDone(fetch.flight, 3))
    assert rig.residency() == {"ab": "DH", "abcd": "DH", "abxyz": "H"}
    recount(rig.view)


@pytest.mark.parametrize("pages", [-1, 5, True and 7, 1.0, None])
def test_replies_of_wrong_sizes_are_refused(pages: object) -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    with pytest.raises(CallerError, match="pages"):
        rig.feed(LookupDone(lookup.flight, pages))  # type: ignore[arg-type]
    fetch = rig.fetch(lookup, 4)
    with pytest.raises(CallerError, match="pages"):
        rig.feed(FetchDone(fetch.flight, pages))  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="expected a lookup in flight, found a fetch"):
        rig.feed(LookupDone(fetch.flight, 0))
    rig.feed(FetchDone(fetch.flight, 4))
    with pytest.raises(CallerError, match="exactly once"):
        rig.feed(FetchDone(fetch.flight, 4))


def test_the_budget_shortens_a_prefetch_and_refuses_the_next() -> None:
    rig = storage(prefetch_budget_tokens=5 * PAGE + 3)
    assert len(rig.lookup(1, "abcd").digests) == 4
    assert len(rig.lookup(2, "xyz").digests) == 1
    assert end_of(rig.arrive(3, "uvw"), 3) == Prefetched(3, 0, 3, 0, 0, "budget")
    assert rig.view.prefetching_tokens == 5 * PAGE
    for request in (1, 2):
        rig.settle([rig.feed(Aborted(request))[0]])
    assert rig.view.prefetching_tokens == 5 * PAGE, "until the replies"


def test_the_budget_is_the_host_pool_unless_said() -> None:
    rig = storage(host=5)
    lookup = rig.lookup(1, "abcdefgh")
    assert len(lookup.digests) == 5
    rig.feed(LookupDone(lookup.flight, 0))
    assert rig.view.prefetching_tokens == 0


def test_less_than_the_threshold_of_the_budget_is_not_begun() -> None:
    rig = storage(prefetch_budget_tokens=3 * PAGE, prefetch_threshold_tokens=2 * PAGE)
    rig.lookup(1, "ab")
    assert end_of(rig.arrive(2, "xyz"), 2).reason == "budget"


def test_requests_that_want_the_same_pages_join() -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    assert len(rig.arrive(2, "abxy")) == 1
    assert len(rig.arrive(3, "abcdef")) == 1
    fetch = rig.fetch(lookup, 4)
    assert len(rig.arrive(4, "abcz")) == 1
    assert [rig.view.requests[one].prefetch for one in (1, 2, 3, 4)] == [fetch.flight] * 4
    outcomes = rig.feed(FetchDone(fetch.flight, 4))
    assert [type(one) for one in outcomes] == [Prefetched, Lookup, Lookup, Lookup]
    assert [one.request for one in outcomes if isinstance(one, Lookup)] == [2, 3, 4]
    assert [one.first_page for one in outcomes if isinstance(one, Lookup)] == [2, 4, 3]
    recount(rig.view)


def test_a_request_that_joined_is_told_when_nothing_is_missing_any_more() -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    rig.arrive(2, "abcd")
    outcomes = rig.feed(FetchDone(fetch.flight, 4))
    assert outcomes == [Prefetched(1, 0, 4, 4, 4, ""), Prefetched(2, 4, 0, 0, 0, "")]


def test_those_that_joined_go_on_when_the_lookup_misses() -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    rig.arrive(2, "abcd")
    rig.arrive(3, "abcd")
    outcomes = rig.feed(LookupDone(lookup.flight, 0))
    assert [type(one) for one in outcomes] == [Prefetched, Lookup]
    assert rig.view.flights[rig.view.requests[2].prefetch].waiters == [2, 3]


@pytest.mark.parametrize("fetching", [False, True])
def test_the_oldest_waiter_takes_over(fetching: bool) -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    rig.arrive(2, "abxyz")
    flight = rig.fetch(lookup, 4).flight if fetching else lookup.flight
    assert [type(one) for one in rig.feed(Aborted(1))] == [Released]
    assert rig.view.flights[flight].request == 2
    if not fetching:
        fetch = rig.fetch(lookup, 4)
        assert (fetch.request, fetch.pieces[0].digests) == (2, lookup.digests), "of the first key"
        flight = fetch.flight
    assert rig.feed(FetchDone(flight, 4)) == [Prefetched(2, 0, 4, 4, 4, "")]
    assert rig.residency() == {"abcd": "H"}
    assert rig.look("abxyz").host_pages == 2


def test_an_older_request_that_joins_later_becomes_the_owner() -> None:
    rig = storage()
    first = rig.one(Lookup, rig.arrive(1, "abcd", match_pages=2))
    rig.arrive(2, "abcd")
    rig.arrive(3, "ab")
    rig.feed(PrefetchLimitReached(3))
    rig.settle(rig.admit(3))
    rig.settle(rig.finish(3))
    second = rig.lookup(4, "abcd")
    assert second.first_page == 2
    assert rig.feed(LookupDone(first.flight, 2)) == [Prefetched(1, 0, 2, 2, 0, "")]
    assert rig.view.flights[second.flight].waiters == [2, 4]
    assert rig.fetch(second, 2).request == 2
    recount(rig.view)


def test_a_waiting_policy_refuses_until_the_prefetch_ends() -> None:
    rig = storage()
    lookup = rig.lookup(1, "abcd")
    refused = rig.one(Refused, rig.admit(1))
    assert (refused.reason, refused.after) == ("fetching", lookup.flight)
    fetch = rig.fetch(lookup, 4)
    assert rig.one(Refused, rig.admit(1)).after == fetch.flight
    rig.feed(FetchDone(fetch.flight, 4))
    assert rig.one(Admitted, rig.admit(1)).host_pages == 4


def test_too_large_is_judged_first() -> None:
    rig = storage(device=4, host=16)
    rig.lookup(1, "abcdef")
    assert rig.one(Refused, rig.admit(1)).reason == "too_large"


@pytest.mark.parametrize("fetching", [False, True])
def test_best_effort_admits_at_once(fetching: bool) -> None:
    rig = storage(prefetch_policy="best_effort")
    lookup = rig.lookup(1, "abcd")
    flight = rig.fetch(lookup, 3).flight if fetching else lookup.flight
    outcomes = rig.admit(1)
    found = 3 if fetching else 0
    assert outcomes[:2] == [Prefetched(1, 0, 4, found, 0, "late"), Abandoned(flight)]
    assert rig.one(Admitted, outcomes).host_pages == 0
    if fetching:
        assert rig.feed(FetchDone(flight, 3)) == []
        assert rig.residency() == {"abc": "H"}, "an abandoned fetch still lands"
    else:
        assert rig.feed(LookupDone(flight, 3)) == []
    recount(rig.view)


def test_best_effort_leaves_the_prefetch_to_those_that_joined() -> None:
    rig = storage(prefetch_policy="best_effort")
    lookup = rig.lookup(1, "abcd")
    rig.arrive(2, "abcd")
    outcomes = rig.admit(1)
    assert not any(isinstance(one, Abandoned) for one in outcomes)
    assert rig.view.flights[lookup.flight].request == 2


@pytest.mark.parametrize("policy", ["wait_complete", "timeout", "best_effort"])
def test_a_request_does_not_wait_beyond_its_limit(policy: str) -> None:
    rig = storage(prefetch_policy=policy)
    lookup = rig.lookup(1, "abcd")
    outcomes = rig.feed(PrefetchLimitReached(1))
    assert outcomes == [Prefetched(1, 0, 4, 0, 0, "late"), Abandoned(lookup.flight)]
    assert rig.feed(PrefetchLimitReached(1)) == []
    rig.one(Admitted, rig.admit(1))
    with pytest.raises(CallerError, match="expected a waiting request"):
        rig.feed(PrefetchLimitReached(1))
    assert rig.feed(LookupDone(lookup.flight, 4)) == []
    assert rig.view.prefetching_tokens == 0


def test_a_request_that_waits_again_does_not_prefetch_again() -> None:
    rig = storage()
    rig.settle(rig.arrive(1, "abcd"))
    rig.settle(rig.admit(1))
    outcomes = rig.retract(1)
    rig.settle(outcomes)
    assert not any(isinstance(one, Lookup | Prefetched) for one in outcomes)
    rig.evict("full", 16)
    rig.feed(Flushed())
    rig.stored.clear()
    assert rig.one(Admitted, rig.feed(AdmitWanted(1, 99))).host_pages == 0


def test_a_page_that_was_promised_and_not_delivered_is_not_asked_for_again() -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    outcomes = rig.feed(FetchDone(fetch.flight, 1))
    assert outcomes == [Prefetched(1, 0, 4, 4, 1, "short")]
    assert rig.view.distrusted == (key("abcd").page_digests()[1],)
    assert end_of(rig.arrive(2, "abcd"), 2) == Prefetched(2, 1, 3, 0, 0, "miss")
    assert len(rig.lookup(3, "axyz").digests) == 3


def test_a_lookup_ends_before_a_page_that_is_not_trusted() -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    rig.feed(FetchDone(fetch.flight, 2))
    rig.evict("full", 16, Tier.HOST)
    lookup = rig.lookup(2, "abcd")
    assert len(lookup.digests) == 2
    assert end_of(rig.feed(LookupDone(lookup.flight, 0)), 2).asked_pages == 2


def test_those_that_joined_do_not_ask_for_a_page_that_is_not_trusted() -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "ab"), 2)
    rig.arrive(2, "ab")
    outcomes = rig.feed(FetchDone(fetch.flight, 0))
    assert outcomes == [Prefetched(1, 0, 2, 2, 0, "short"), Prefetched(2, 0, 2, 0, 0, "miss")]


def test_the_record_of_pages_that_are_not_trusted_is_bounded() -> None:
    rig = storage(host=2)
    for request in range(1030):
        text = chr(1000 + request)
        fetch = rig.fetch(rig.lookup(request, text), 1)
        rig.feed(FetchDone(fetch.flight, 0))
        rig.feed(Aborted(request))
    assert len(rig.view.distrusted) == 1024
    assert rig.view.distrusted[0] == key(chr(1006)).page_digests()[0]


def test_what_is_stored_again_is_trusted_again() -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    rig.feed(FetchDone(fetch.flight, 0))
    assert len(rig.view.distrusted) == 1
    rig.settle(rig.admit(1))
    rig.settle(rig.finish(1))
    assert rig.view.distrusted == ()
