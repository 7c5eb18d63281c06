"""The end of a fetch: what the tree takes, where nodes are cut, and what is given back."""

from __future__ import annotations

import pytest

from hicache.core.actions import Backup, Fetch, KvStored, Outcome, Prefetched, Store
from hicache.core.events import (
    Aborted,
    BackupDone,
    EvictWanted,
    FetchDone,
    Flushed,
    LookupDone,
    PrefetchLimitReached,
    StoreDone,
)
from hicache.core.types import PageState, Tier

from .recount import recount
from .rig import PAGE, Rig, hybrid, key, states, windows


def land(rig: Rig, fetch: Fetch, pages: int | None = None) -> list[Outcome]:
    outcomes = rig.feed(FetchDone(fetch.flight, fetch.pages if pages is None else pages))
    recount(rig.view)
    return outcomes


def compute(rig: Rig, request: int, text: str) -> None:
    """Another request computes this text, without a prefetch."""
    rig.arrive(request, text)
    rig.feed(PrefetchLimitReached(request))
    rig.settle(rig.admit(request))
    rig.settle(rig.finish(request))


def lose(rig: Rig) -> None:
    """Everything that nobody holds leaves both tiers."""
    rig.demote()
    for name in rig.names:
        rig.evict(name, 99, Tier.HOST)
    assert rig.residency() == {}


def storage(device: int = 16, host: int = 16, **settings: object) -> Rig:
    return Rig(device, host, storage=True, **settings)


@pytest.mark.parametrize("pages", [0, 1, 3, 4])
def test_the_leading_pages_that_arrived_become_a_node(pages: int) -> None:
    rig = storage(kv_events=True)
    fetch = rig.fetch(rig.lookup(1, "abcde"), 4)
    outcomes = land(rig, fetch, pages)
    digests = tuple(key("abcd").page_digests()[:pages])
    told = [one for one in outcomes if isinstance(one, KvStored)]
    assert told == ([KvStored(Tier.HOST, digests)] if pages else [])
    reason = "short" if pages < 4 else ""
    assert outcomes[-1] == Prefetched(1, 0, 5, 4, pages, reason)
    assert rig.residency() == ({"abcd"[:pages]: "H"} if pages else {})
    assert (rig.host.free, rig.host.counts[PageState.LENT]) == (16 - pages, 0)
    assert rig.view.prefetching_tokens == 0
    for node in rig.view.nodes():
        assert (node.hits, node.priority, rig.view.believed(node)) == (0, 0, True)


def test_what_was_fetched_is_below_what_was_there() -> None:
    rig = storage()
    rig.run(0, "ab")
    land(rig, rig.fetch(rig.lookup(1, "abcd"), 2))
    assert rig.residency() == {"ab": "DH", "abcd": "H"}
    assert rig.look("abcd").host_pages == 2
    rig.settle(rig.admit(1))
    rig.finish(1)
    rig.empty()


def test_a_new_node_has_the_priority_of_its_request_and_the_present_tick() -> None:
    rig = storage()
    rig.run(0, "xyz")
    rig.texts[1] = "ab"
    fetch = rig.fetch(rig.lookup(1, "ab"), 2)
    rig.view.requests[1].priority = 7
    land(rig, fetch)
    node = rig.view.root.children[key("a").raw]
    assert (node.priority, node.last_use, node.inserted) == (7, [rig.view.tick], rig.view.tick)


@pytest.mark.parametrize("text", ["abcd", "abcdxy", "abc", "abxy", "xy"])
def test_pages_that_were_computed_meanwhile_are_given_back_or_adopted(text: str) -> None:
    """What another request put into the tree has host copies by then: they stay."""
    rig = storage(device=16, host=24)
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    compute(rig, 2, text)
    (end,) = land(rig, fetch)
    assert end == Prefetched(1, 0, 4, 4, 4, "")
    assert rig.look("abcd").device_pages + rig.look("abcd").host_pages == 4
    assert rig.host.counts[PageState.CACHED] == len(
        {text[:n] for n in range(1, len(text) + 1)} | {"a", "ab", "abc", "abcd"}
    )


def test_nodes_that_are_on_device_alone_adopt_host_copies() -> None:
    rig = storage(write_policy="write_back")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    compute(rig, 2, "abxy")
    compute(rig, 3, "abcz")
    land(rig, fetch)
    assert rig.residency() == {"ab": "DH", "abc": "DH", "abcd": "H", "abcz": "D", "abxy": "D"}
    (child,) = (one for one in rig.view.nodes() if one.end_page == 3)
    assert rig.view.believed(child)


def test_a_longer_node_is_cut_where_the_fetched_pages_end() -> None:
    rig = storage(write_policy="write_back")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    compute(rig, 2, "abcdefg")
    assert land(rig, fetch, 3)[-1] == Prefetched(1, 0, 4, 4, 3, "short")
    assert rig.residency() == {"abc": "DH", "abcdefg": "D"}


def test_a_node_that_holds_more_than_was_fetched_is_cut_at_the_first_page() -> None:
    rig = storage(write_policy="write_back")
    rig.run(0, "ab")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 2)
    lose(rig)
    compute(rig, 2, "abcde")
    assert land(rig, fetch)[-1].fetched_pages == 2  # type: ignore[union-attr]
    assert rig.residency() == {"ab": "D", "abcd": "DH", "abcde": "D"}


def test_without_its_prefix_nothing_can_be_attached() -> None:
    rig = storage(write_policy="write_back")
    rig.run(0, "ab")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 2)
    lose(rig)
    assert land(rig, fetch)[-1] == Prefetched(1, 2, 2, 2, 0, "")
    assert rig.residency() == {}
    assert rig.view.distrusted == ()


def test_with_contiguous_copies_pages_behind_a_gap_are_given_back() -> None:
    rig = storage(write_policy="write_through_selective")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    compute(rig, 2, "abcd")
    compute(rig, 3, "xy")
    land(rig, fetch)
    assert rig.residency() == {"abcd": "DH", "xy": "D"}, "the first node has the pages of its own"
    rig = storage(write_policy="write_through_selective")
    compute(rig, 2, "ab")
    rig.arrive(3, "ab")
    backup = rig.one(Backup, rig.settle_passes(rig.admit(3)))
    fetch = rig.fetch(rig.lookup(1, "abcd"), 2)
    rig.feed(BackupDone(backup.flight, ok=False))
    assert land(rig, fetch)[-1] == Prefetched(1, 2, 2, 2, 0, "")
    assert rig.residency() == {"ab": "D"}
    assert rig.host.free == 16


def test_a_prefix_whose_backup_failed_is_a_gap() -> None:
    rig = storage()
    rig.run(0, "ab")
    lookup = rig.lookup(1, "abcd")
    rig.arrive(2, "abc")
    rig.feed(PrefetchLimitReached(2))
    backup = rig.one(Backup, rig.settle_passes(rig.admit(2)))
    fetch = rig.fetch(lookup, 2)
    assert [(one.first_page, len(one.pages)) for one in fetch.pieces] == [(3, 1)]
    assert fetch.pages == 2
    rig.feed(BackupDone(backup.flight, ok=False))
    assert land(rig, fetch)[-1] == Prefetched(1, 2, 2, 2, 0, "")
    assert rig.residency() == {"ab": "DH", "abc": "D"}
    assert rig.host.free == 14


def test_the_lock_of_a_load_keeps_copies_above_it_away() -> None:
    rig = storage(device=8, host=24, write_policy="write_back")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    compute(rig, 2, "abcd")
    compute(rig, 3, "abcdef")
    for _ in range(2):
        rig.evict("full", 2)
    assert rig.residency() == {"abcd": "D", "abcdef": "H"}
    load, _ = rig.load(4, "abcdef")
    (end,) = land(rig, fetch)
    assert end == Prefetched(1, 0, 4, 4, 0, "")
    assert rig.residency() == {"abcd": "D", "abcdef": "H"}
    assert rig.view.flights[load.flight].legs


def test_the_lock_of_a_store_does_not() -> None:
    rig = storage(device=8, host=24, write_policy="write_back")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    compute(rig, 2, "abcd")
    compute(rig, 3, "abcdef")
    backup = rig.one(Backup, rig.feed(EvictWanted(Tier.DEVICE, "full", 2)))
    store = rig.one(Store, rig.feed(BackupDone(backup.flight)))
    assert land(rig, fetch)[-1] == Prefetched(1, 0, 4, 4, 4, "")
    assert rig.host.protected == 6
    rig.feed(StoreDone(store.flight, 2))
    assert rig.host.protected == 0
    recount(rig.view)


@pytest.mark.parametrize("joined", [False, True])
def test_a_fetch_lands_after_its_request_is_gone(joined: bool) -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    if joined:
        rig.arrive(2, "abcd")
    rig.feed(Aborted(1))
    outcomes = land(rig, fetch, 3)
    assert rig.residency() == {"abc": "H"}
    assert outcomes[:1] == ([Prefetched(2, 0, 4, 4, 3, "short")] if joined else [])
    assert len(rig.view.distrusted) == joined, "an abandoned fetch may be short for that"


def test_a_flush_keeps_what_arrives_out_of_the_tree() -> None:
    rig = storage()
    rig.run(0, "ab")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 2)
    rig.feed(Flushed())
    assert rig.host.counts[PageState.LENT] == 2
    assert land(rig, fetch) == []
    assert rig.residency() == {}
    assert rig.host.free == 16


def test_a_window_and_the_backbone_above_it_become_nodes() -> None:
    rig = windows((32, 16), (32, 16), storage=True)
    fetch = rig.fetch(rig.lookup(1, "abcdef"), 6)
    assert [(one.component, one.first_page, len(one.pages)) for one in fetch.pieces] == [
        ("full", 0, 6),
        ("swa", 4, 2),
    ]
    assert land(rig, fetch) == [Prefetched(1, 0, 6, 6, 6, "")]
    assert rig.residency() == {"abcd": "H/-", "abcdef": "H/H"}
    assert rig.look("abcdef").host_pages == 6


def test_a_state_is_at_the_end() -> None:
    rig = states((32, 16), (32, 16), storage=True)
    fetch = rig.fetch(rig.lookup(1, "abcdef"), 5)
    assert land(rig, fetch) == [Prefetched(1, 0, 6, 5, 5, "")]
    assert rig.residency() == {"abcde": "H/H"}
    (node,) = rig.view.nodes()
    assert rig.view.believed(node, 0)
    assert rig.view.believed(node, 1)
    assert rig.view.pool(Tier.HOST, 1).counts[PageState.CACHED] == 1


@pytest.mark.parametrize("names", ["full,swa", "full,mamba", "full,swa,mamba"])
@pytest.mark.parametrize("pages", [0, 3, 5])
def test_a_hybrid_takes_everything_or_nothing(names: str, pages: int) -> None:
    count = len(names.split(","))
    rig = hybrid(names, (16,) * count, (16,) * count, storage=True)
    fetch = rig.fetch(rig.lookup(1, "abcdef"), 6)
    assert land(rig, fetch, pages) == [Prefetched(1, 0, 6, 6, 0, "short")]
    assert rig.residency() == {}
    assert all(pool.free == pool.capacity for pool in rig.view.pools(Tier.HOST))
    assert rig.view.distrusted == (key("abcdef").page_digests()[pages],)


def test_a_window_that_is_known_in_part_is_completed() -> None:
    rig = windows((32, 16), (32, 16), storage=True, swa_window=4 * PAGE)
    rig.run(0, "abcdef")
    lookup = rig.lookup(1, "abcdefgh")
    fetch = rig.fetch(lookup, 2)
    assert [(one.component, one.first_page, len(one.pages)) for one in fetch.pieces] == [
        ("full", 6, 2),
        ("swa", 6, 2),
    ]
    assert rig.view.pool(Tier.HOST, 1).protected == 4, "the node in which the window begins"
    land(rig, fetch)
    assert rig.residency() == {"ab": "DH/-", "abcd": "DH/DH", "abcdef": "DH/DH", "abcdefgh": "H/H"}
    assert rig.look("abcdefgh").host_pages == 2


def test_a_window_that_was_lost_meanwhile_makes_the_fetch_useless() -> None:
    rig = windows((32, 16), (32, 16), storage=True, write_policy="write_back", swa_window=4 * PAGE)
    rig.run(0, "abcdef")
    fetch = rig.fetch(rig.lookup(1, "abcdefgh"), 2)
    compute(rig, 2, "abcdefxyzuvw")
    for _ in range(2):
        rig.evict("swa", 4)
    rig.evict("swa", 4, Tier.HOST)
    before = rig.residency()
    assert before["abcdef"] == "D/-"
    assert land(rig, fetch) == [Prefetched(1, 6, 2, 2, 0, "")]
    assert rig.residency() == before, "nothing was split"


def test_states_beyond_the_limit_of_a_path_are_freed() -> None:
    rig = states((32, 16), (32, 16), storage=True, mamba_states_per_path=1)
    rig.run(0, "ab")
    fetch = rig.fetch(rig.lookup(1, "abcd"), 2)
    outcomes = land(rig, fetch)
    assert [type(one).__name__ for one in outcomes] == ["Evicted", "Evicted", "Prefetched"]
    assert rig.residency() == {"ab": "DH/-", "abcd": "H/H"}


def test_the_lookup_of_a_longer_prompt_goes_on_from_there() -> None:
    rig = storage()
    rig.stores("abcdef")
    rig.settle(rig.arrive(1, "abc"))
    assert rig.residency() == {"abc": "H"}
    rig.settle(rig.arrive(2, "abcdefgh"))
    assert rig.residency() == {"abc": "H", "abcdef": "H"}
    recount(rig.view)
    assert rig.feed(LookupDone(rig.lookup(3, "q").flight, 0))[0].request == 3  # type: ignore[union-attr]
