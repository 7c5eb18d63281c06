"""Stores: what is stored when, how many at a time, what a reply changes, and splits meanwhile."""

from __future__ import annotations

import pytest

from hicache.core.actions import Backup, KvStored, Lookup, Outcome, Prefill, Released, Store
from hicache.core.errors import CallerError
from hicache.core.events import (
    BackupDone,
    EvictWanted,
    FetchDone,
    Finished,
    LookupDone,
    PrefetchLimitReached,
    PrefillDone,
    StorageAttached,
    StoreDone,
)
from hicache.core.radix.node import Node
from hicache.core.types import PageState, Tier

from .recount import recount
from .rig import Rig, hybrid, key, states, windows


def storage(device: int = 32, host: int = 32, **settings: object) -> Rig:
    return Rig(device, host, storage=True, **settings)


def compute(rig: Rig, request: int, text: str) -> list[Outcome]:
    """A request computes this text and ends. Backups are answered, stores are not."""
    for one in rig.arrive(request, text):
        if isinstance(one, Lookup):
            rig.feed(PrefetchLimitReached(request))
            rig.feed(LookupDone(one.flight))
    todo, seen = rig.admit(request), []
    while todo:
        one = todo.pop(0)
        seen.append(one)
        if isinstance(one, Backup):
            todo += rig.feed(BackupDone(one.flight))
        else:
            todo += rig.settle_passes([one])
    seen += rig.finish(request)
    recount(rig.view)
    return seen


def stores(outcomes: list[Outcome]) -> list[Store]:
    return [one for one in outcomes if isinstance(one, Store)]


def reply(rig: Rig, store: Store, pages: int | None = None) -> list[Outcome]:
    total = sum(len(one.pages) for one in store.pieces)
    outcomes = rig.feed(StoreDone(store.flight, total if pages is None else pages))
    recount(rig.view)
    return outcomes


def node_at(rig: Rig, end: int) -> Node:
    (node,) = (one for one in rig.view.nodes() if one.end_page == end)
    return node


def test_a_node_is_stored_when_its_backup_has_ended() -> None:
    rig = storage(kv_events=True)
    rig.arrive(1, "abc")
    rig.feed(PrefetchLimitReached(1))
    backup = rig.one(Backup, rig.settle_passes(rig.admit(1)))
    told, store = rig.feed(BackupDone(backup.flight))
    assert isinstance(told, KvStored)
    assert isinstance(store, Store)
    (piece,) = store.pieces
    assert (piece.component, piece.first_page) == ("full", 0)
    assert piece.digests == tuple(key("abc").page_digests())
    assert piece.pages.tolist() == backup.copies[0].target.tolist()
    node = node_at(rig, 3)
    assert not rig.view.believed(node)
    assert reply(rig, store) == [KvStored(Tier.STORAGE, piece.digests)]
    assert rig.view.believed(node)
    assert rig.host.loans.sum() == rig.host.protected == 0


def test_a_backup_that_failed_stores_nothing() -> None:
    rig = storage()
    rig.arrive(1, "abc")
    rig.feed(PrefetchLimitReached(1))
    backup = rig.one(Backup, rig.settle_passes(rig.admit(1)))
    assert rig.feed(BackupDone(backup.flight, ok=False)) == []
    assert rig.view.store_queue == ()


def test_a_store_holds_what_it_reads_and_what_is_above() -> None:
    rig = storage()
    reply(rig, *stores(compute(rig, 1, "ab")))
    (store,) = stores(compute(rig, 2, "abcd"))
    assert [one.first_page for one in store.pieces] == [2]
    rig.demote()
    assert rig.evict("full", 32, Tier.HOST) == []
    assert rig.residency() == {"ab": "H", "abcd": "H"}
    reply(rig, store)
    assert len(rig.evict("full", 32, Tier.HOST)) == 2


def test_the_pieces_of_a_node_are_its_components() -> None:
    rig = hybrid("full,swa,mamba", (32, 16, 16), (32, 16, 16), storage=True)
    found = stores(compute(rig, 1, "abcdef"))
    pieces = [[(p.component, p.first_page, len(p.pages)) for p in one.pieces] for one in found]
    assert pieces == [[("full", 0, 4)], [("full", 4, 2), ("swa", 4, 2), ("mamba", 5, 1)]]
    digests = key("abcdef").page_digests()
    assert found[1].pieces[2].digests == (digests[5],)
    assert found[1].pieces[1].digests == tuple(digests[4:])


def test_so_many_stores_are_in_flight() -> None:
    rig = storage(max_stores=2)
    first = [
        one for request, text in enumerate("abcd") for one in stores(compute(rig, request, text))
    ]
    assert len(first) == 2
    waiting = rig.view.store_queue
    assert len(waiting) == 2
    (third,) = stores(reply(rig, first[1]))
    assert third.pieces[0].digests == tuple(key("c").page_digests())
    assert rig.view.store_queue == waiting[1:]
    rig.settle([first[0], third])
    assert rig.view.store_queue == ()
    assert rig.view.storage_flights == {}


def test_a_storage_that_is_only_read_stores_nothing() -> None:
    for settings in ({"max_stores": 0}, {"store_tries": 0}):
        rig = storage(**settings)
        assert stores(compute(rig, 1, "ab")) == []
        assert len(rig.view.store_queue) == ("max_stores" in settings)


def test_a_node_that_leaves_the_tree_leaves_the_queue() -> None:
    rig = storage(max_stores=1)
    compute(rig, 1, "a")
    compute(rig, 2, "bcd")
    assert len(rig.view.store_queue) == 1
    rig.demote()
    rig.evict("full", 3, Tier.HOST)
    assert rig.view.store_queue == ()
    recount(rig.view)


def test_a_split_leaves_both_halves_in_the_place_of_the_node() -> None:
    rig = storage(max_stores=1)
    (store,) = stores(compute(rig, 1, "a"))
    compute(rig, 2, "bcde")
    compute(rig, 3, "x")
    lower, last = rig.view.store_queue
    compute(rig, 4, "bcyz")
    upper = node_at(rig, 2).id
    assert rig.view.store_queue[:3] == (upper, lower, last)
    (store,) = stores(reply(rig, store))
    assert store.pieces[0].digests == tuple(key("bc").page_digests())


def test_a_store_that_failed_is_tried_again_after_the_others() -> None:
    rig = storage(max_stores=1, store_tries=2)
    (first,) = stores(compute(rig, 1, "ab"))
    compute(rig, 2, "xy")
    (other,) = stores(reply(rig, first, 1))
    node = next(one for one in rig.view.nodes() if rig.view.store_queue == (one.id,))
    assert (node.store_failures, other.pieces[0].digests[0]) == (1, key("x").page_digests()[0])
    (again,) = stores(reply(rig, other))
    assert again.pieces[0].digests == first.pieces[0].digests
    assert reply(rig, again, 0) == []
    assert (node.store_failures, rig.view.store_queue) == (2, ())
    assert not rig.view.believed(node)


def test_a_use_gives_all_tries_again() -> None:
    rig = storage(store_tries=1)
    reply(rig, *stores(compute(rig, 1, "ab")), 0)
    node = node_at(rig, 2)
    assert node.store_failures == 1
    outcomes = compute(rig, 2, "abxy")
    assert node.store_failures == 0
    first, second = stores(outcomes)
    assert first.pieces[0].digests == tuple(key("ab").page_digests())
    reply(rig, first)
    reply(rig, second)
    assert rig.view.believed(node)


def test_what_is_believed_stored_is_not_stored_again() -> None:
    rig = storage()
    reply(rig, *stores(compute(rig, 1, "ab")))
    assert stores(compute(rig, 2, "ab")) == []
    rig.feed(StorageAttached())
    assert not rig.view.believed(node_at(rig, 2))
    assert len(stores(compute(rig, 3, "ab"))) == 1


def test_a_store_of_a_use_comes_after_everything_else() -> None:
    rig = storage(store_tries=1)
    reply(rig, *stores(compute(rig, 1, "ab")), 0)
    rig.arrive(2, "ab")
    prefill = rig.one(Prefill, rig.admit(2))
    outcomes = rig.feed(PrefillDone(prefill.flight))
    assert [type(one).__name__ for one in outcomes] == ["Cached", "Store"]
    rig.feed(StoreDone(outcomes[1].flight, 0))  # type: ignore[union-attr]
    outcomes = rig.feed(Finished(2, key("ab"), 8))
    assert [type(one) for one in outcomes] == [Released, Store]


def test_a_node_whose_store_is_under_way_is_not_queued_by_a_use() -> None:
    rig = storage()
    compute(rig, 1, "ab")
    assert stores(compute(rig, 2, "ab")) == []
    assert rig.view.store_queue == ()


def test_a_component_that_comes_later_is_stored_alone() -> None:
    rig = states((32, 16), (32, 2), storage=True)
    for store in stores(compute(rig, 1, "ab")) + stores(compute(rig, 2, "abcd")):
        reply(rig, store)
    rig.evict("mamba", 1)
    rig.evict("mamba", 1, Tier.HOST)
    assert rig.residency()["ab"] == "DH/-"
    rig.feed(StorageAttached())
    (store,) = stores(compute(rig, 3, "abcdx"))[:1]
    assert [one.component for one in store.pieces] == ["full"]


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 4])
def test_a_split_while_it_is_stored(pages: int) -> None:
    rig = storage(kv_events=True, store_tries=1)
    (store,) = stores(compute(rig, 1, "abcd"))
    compute(rig, 2, "abxy")
    told = reply(rig, store, pages)
    digests = tuple(key("abcd").page_digests())
    expected = [KvStored(Tier.STORAGE, digests[:2])] if pages >= 2 else []
    expected += [KvStored(Tier.STORAGE, digests[2:])] if pages == 4 else []
    assert told == expected
    nodes = {one.end_page: one for one in rig.view.nodes() if one.key != key("xy").raw}
    assert rig.view.believed(nodes[2]) == (pages >= 2)
    assert rig.view.believed(nodes[4]) == (pages == 4)
    assert nodes[2].store_failures == (pages < 2)
    assert nodes[4].store_failures == (pages < 4)


def test_a_split_of_a_stored_node_leaves_its_state_below() -> None:
    rig = states((32, 16), (32, 16), storage=True)
    reply(rig, *stores(compute(rig, 1, "abcd")))
    compute(rig, 2, "abxy")
    upper, lower = (
        node_at(rig, 2),
        next(one for one in rig.view.nodes() if one.key == key("cd").raw),
    )
    assert rig.residency()["ab"] == "DH/DH", "a state was made where the prompts part"
    assert (rig.view.believed(upper), rig.view.believed(lower)) == (True, True)
    assert (rig.view.believed(upper, 1), rig.view.believed(lower, 1)) == (False, True)


def test_a_node_that_loses_its_tail_loses_what_was_stored_at_its_end() -> None:
    rig = states((32, 16), (32, 16), storage=True)
    reply(rig, *stores(compute(rig, 1, "abcd")))
    fetch = rig.fetch(rig.lookup(2, "abcdef"), 2)
    rig.evict("mamba", 1, Tier.HOST)
    rig.evict("mamba", 1)
    rig.feed(FetchDone(fetch.flight, 0))
    assert rig.residency() == {"abcd": "H/-"}, "no boundary, but it was locked"
    rig.evict("full", 2, Tier.HOST)
    assert rig.residency() == {"ab": "H/-"}
    node = node_at(rig, 2)
    assert (rig.view.believed(node), rig.view.believed(node, 1)) == (True, False)


def test_leading_pieces_of_a_store_are_believed() -> None:
    rig = windows((32, 16), (32, 16), storage=True, store_tries=3)
    (store,) = stores(compute(rig, 1, "ab"))
    (again,) = stores(reply(rig, store, 3))
    node = node_at(rig, 2)
    assert (rig.view.believed(node), rig.view.believed(node, 1)) == (True, False)
    assert [one.component for one in again.pieces] == ["swa"]
    reply(rig, again)
    assert (node.store_failures, rig.view.believed(node, 1)) == (0, True)


def test_pages_that_were_not_trusted_are_trusted_as_soon_as_they_are_durable() -> None:
    rig = storage()
    fetch = rig.fetch(rig.lookup(1, "abcd"), 4)
    rig.feed(FetchDone(fetch.flight, 1))
    (digest,) = rig.view.distrusted
    backup = rig.one(Backup, rig.settle_passes(rig.admit(1)))
    (store,) = rig.feed(BackupDone(backup.flight))
    assert isinstance(store, Store)
    again = reply(rig, store, 0)
    assert rig.view.distrusted == (digest,)
    (store,) = stores(again)
    reply(rig, store, 1)
    assert rig.view.distrusted == ()


@pytest.mark.parametrize("pages", [-1, 4, None, 0.5])
def test_a_reply_tells_of_no_more_pages_than_there_are(pages: object) -> None:
    rig = storage()
    (store,) = stores(compute(rig, 1, "abc"))
    with pytest.raises(CallerError, match="pages"):
        rig.feed(StoreDone(store.flight, pages))  # type: ignore[arg-type]
    reply(rig, store)


def written_back(rig: Rig) -> tuple[Store, Store]:
    """The tree has ab on device alone, and the two leaves below it on host, in stores."""
    compute(rig, 1, "abcd")
    compute(rig, 2, "abxy")
    found: list[Store] = []
    for _ in range(5):
        for one in rig.feed(EvictWanted(Tier.DEVICE, "full", 2)):
            if isinstance(one, Backup):
                found += stores(rig.feed(BackupDone(one.flight)))
    first, second = found
    assert rig.residency() == {"ab": "DH", "abcd": "H", "abxy": "H"}
    return first, second


def test_a_write_back_above_a_store_is_taken_and_locked() -> None:
    rig = storage(write_policy="write_back", max_stores=2)
    first, second = written_back(rig)
    upper = node_at(rig, 2)
    assert len(upper.locks[Tier.HOST][0]) == 2
    recount(rig.view)
    reply(rig, first)
    assert len(upper.locks[Tier.HOST][0]) == 2, "and the store of the node itself"
    reply(rig, second)


def test_halves_of_a_write_back_land_above_a_store() -> None:
    """The upper half lands first, when nothing below it is on host, and is locked all the same."""
    rig = storage(write_policy="write_back")
    compute(rig, 1, "abcd")
    compute(rig, 2, "abcdxy")
    (backup,) = rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    assert isinstance(backup, Backup)
    (store,) = stores(rig.feed(BackupDone(backup.flight)))
    rig.evict("full", 2)
    (backup,) = rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    assert isinstance(backup, Backup)
    compute(rig, 3, "abz")
    rig.feed(BackupDone(backup.flight))
    recount(rig.view)
    assert rig.residency()["ab"] == rig.residency()["abcd"] == "DH"
    assert rig.host.protected == 6
    reply(rig, store)


def test_a_deletion_takes_along_what_is_stored_below() -> None:
    rig = storage(device=8, host=2, write_policy="write_back")
    compute(rig, 1, "abcd")
    found: list[Store] = []
    for _ in range(2):
        for one in rig.feed(EvictWanted(Tier.DEVICE, "full", 2)):
            if isinstance(one, Backup):
                found += stores(rig.feed(BackupDone(one.flight)))
    (store,) = found
    assert rig.residency() == {"ab": "D", "abcd": "H"}
    rig.evict("full", 2)
    assert rig.residency() == {}
    recount(rig.view)
    assert (rig.host.counts[PageState.RETIRING], rig.host.protected) == (2, 0)
    assert reply(rig, store) == []
    assert rig.host.free == 2
