"""Storage as a whole: settings, attach, detach, flush, and that the device never waits for it."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    NO_REQUEST,
    Abandoned,
    Backup,
    Delete,
    KvRemoved,
    Lookup,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    StorageDetached,
    Store,
)
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    BackupDone,
    DeleteDone,
    DetachWanted,
    EvictWanted,
    FetchDone,
    Flushed,
    LookupDone,
    PrefetchLimitReached,
    StorageAttached,
    StoreDone,
)
from hicache.core.types import PageState, Tier

from .recount import recount
from .rig import Rig


def storage(device: int = 16, host: int = 16, **settings: object) -> Rig:
    return Rig(device, host, **{"storage": True, **settings})


def at_every_step(**settings: object) -> tuple[Rig, list[int]]:
    """A lookup, a fetch with two waiters and a store are in flight, and a node waits to be stored.
    Returns their flights."""
    rig = storage(max_stores=1, **settings)
    first, second = rig.lookup(1, "ab"), rig.lookup(2, "cde")
    for request in (1, 2):
        rig.feed(PrefetchLimitReached(request))
    found: list[Store] = []
    for request in (1, 2):
        backup = rig.one(Backup, rig.settle_passes(rig.admit(request)))
        found += [one for one in rig.feed(BackupDone(backup.flight)) if isinstance(one, Store)]
        rig.settle(rig.finish(request))
    rig.feed(LookupDone(first.flight))
    rig.feed(LookupDone(second.flight))
    lookup = rig.lookup(3, "xyz")
    fetch = rig.fetch(rig.lookup(4, "abuv"), 2)
    rig.arrive(5, "abuvw")
    (store,) = found
    assert len(rig.view.store_queue) == 1
    recount(rig.view)
    return rig, [store.flight, lookup.flight, fetch.flight]


def replies(rig: Rig, flights: list[int], pages: int) -> list[Outcome]:
    store, lookup, fetch = flights
    outcomes = rig.feed(FetchDone(fetch, pages))
    recount(rig.view)
    outcomes += rig.feed(StoreDone(store, pages))
    recount(rig.view)
    outcomes += rig.feed(LookupDone(lookup, pages))
    recount(rig.view)
    return outcomes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"storage": True}, "storage: expected host pages"),
        ({"storage": 1}, "storage: expected True or False"),
        ({"prefetch_policy": 3}, "prefetch_policy: expected the name"),
        ({"prefetch_policy": "never"}, "prefetch policies: expected one of best_effort"),
        ({"prefetch_threshold_tokens": -1}, "prefetch_threshold_tokens: expected 0 or more"),
        ({"prefetch_budget_tokens": -1}, "prefetch_budget_tokens: expected 0 or more"),
        ({"prefetch_budget_tokens": 1.5}, "prefetch_budget_tokens: expected a whole number"),
        ({"max_stores": -1}, "max_stores: expected 0 or more"),
        ({"store_tries": "x"}, "store_tries: expected a whole number"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(CallerError, match=words):
        Core(Config(1, (8,), **settings))  # type: ignore[arg-type]


def test_a_core_without_host_pages_takes_no_storage() -> None:
    rig = Rig(8)
    with pytest.raises(CallerError, match="expected a core with host pages"):
        rig.feed(StorageAttached())
    with pytest.raises(CallerError, match="expected an attached storage, found none"):
        rig.feed(DetachWanted())
    rig.run(1, "ab")


def test_storage_can_be_attached_later() -> None:
    rig = storage(storage=False)
    rig.run(0, "ab")
    assert not rig.view.attached
    assert rig.feed(StorageAttached()) == []
    assert rig.view.attached
    lookup = rig.lookup(1, "abcd")
    assert lookup.first_page == 2
    rig.feed(LookupDone(lookup.flight))
    outcomes = rig.settle(rig.admit(1))
    stored = [one.pieces[0].first_page for one in outcomes if isinstance(one, Store)]
    assert sorted(stored) == [0, 2], "what was used, and what was backed up"


def test_detaching_ends_every_wait_and_everything_that_is_planned() -> None:
    rig, flights = at_every_step()
    outcomes = rig.feed(DetachWanted())
    assert outcomes == [
        Prefetched(3, 0, 3, 0, 0, "detached"),
        Prefetched(4, 2, 2, 2, 0, "detached"),
        Prefetched(5, 2, 2, 2, 0, "detached"),
        *(Abandoned(flight) for flight in sorted(flights)),
    ]
    recount(rig.view)
    with pytest.raises(CallerError, match="expected an attached storage"):
        rig.feed(DetachWanted())
    (refused,) = rig.feed(StorageAttached())
    assert refused == Refused(NO_REQUEST, "detaching", 3, 0, NO_REQUEST, "full", min(flights))
    assert len(rig.arrive(6, "abq")) == 1
    assert replies(rig, flights, 2) == [StorageDetached()]
    assert rig.residency() == {"ab": "DH", "abuv": "H", "cde": "DH"}, "a fetch still lands"
    assert not any(rig.view.believed(node) for node in rig.view.nodes())
    assert rig.feed(StorageAttached()) == []
    rig.feed(Aborted(4))
    assert [type(one) for one in rig.arrive(7, "abqr")[1:]] == [Lookup]


def test_detaching_with_nothing_in_flight_ends_at_once() -> None:
    rig = storage()
    assert rig.feed(DetachWanted()) == [StorageDetached()]
    assert rig.feed(StorageAttached()) == []


def test_a_wait_that_ends_by_another_event_still_ends_the_detachment() -> None:
    rig = storage()
    lookup = rig.lookup(1, "ab")
    assert rig.feed(DetachWanted())[-1] == Abandoned(lookup.flight)
    rig.feed(Aborted(1))
    assert rig.feed(LookupDone(lookup.flight, 2)) == [StorageDetached()]


def test_a_storage_that_came_back_is_believed_to_be_empty() -> None:
    rig, flights = at_every_step()
    assert rig.feed(StorageAttached()) == []
    assert rig.view.store_queue == ()
    recount(rig.view)
    outcomes = replies(rig, flights, 2)
    assert not any(isinstance(one, StorageDetached) for one in outcomes)
    recount(rig.view)
    found = not any(rig.view.believed(node) for node in rig.view.nodes())
    assert found, "what an earlier storage took or had says nothing of this one"
    assert not rig.view.distrusted


@pytest.mark.parametrize("everything", [False, True])
def test_a_flush_ends_every_wait(everything: bool) -> None:
    rig, flights = at_every_step(kv_events=True)
    outcomes = rig.feed(Flushed(storage=everything))
    kinds = [type(one) for one in outcomes]
    ends = [Prefetched] * 3 + [Abandoned] * 3 + [KvRemoved] * 4
    assert kinds == ends + ([Delete] if everything else [])
    assert [one.reason for one in outcomes if isinstance(one, Prefetched)] == ["flushed"] * 3
    assert [one.flight for one in outcomes if isinstance(one, Abandoned)] == sorted(flights)
    recount(rig.view)
    assert rig.view.store_queue == ()
    assert sorted(rig.view.requests) == [3, 4, 5]
    assert rig.host.counts[PageState.RETIRING] == 2, "what the store reads"
    assert replies(rig, flights, 2) == []
    assert rig.residency() == {}
    assert rig.host.free == 16
    assert rig.view.prefetching_tokens == 0


def test_nothing_begins_while_storage_is_emptied() -> None:
    rig = storage()
    rig.run(0, "ab")
    delete = rig.one(Delete, rig.feed(Flushed(storage=True)))
    assert rig.arrive(1, "ab")[-1] == Prefetched(1, 0, 2, 0, 0, "flushed")
    backup = rig.one(Backup, rig.settle_passes(rig.admit(1)))
    assert rig.feed(BackupDone(backup.flight)) == []
    assert len(rig.view.store_queue) == 1
    recount(rig.view)
    rig.one(Store, rig.feed(DeleteDone(delete.flight, ok=False)))
    assert rig.view.store_queue == ()


def test_a_flush_without_storage_keeps_what_is_stored() -> None:
    rig = storage()
    rig.run(0, "ab")
    rig.feed(Flushed())
    assert rig.residency() == {}
    rig.settle(rig.arrive(1, "ab"))
    assert rig.residency() == {"ab": "H"}


def test_a_flush_clears_what_is_not_trusted() -> None:
    rig = storage()
    rig.feed(FetchDone(rig.fetch(rig.lookup(1, "ab"), 2).flight, 0))
    assert rig.view.distrusted
    rig.feed(Flushed())
    assert not rig.view.distrusted


def test_a_detached_storage_is_not_emptied() -> None:
    rig = storage()
    rig.feed(DetachWanted())
    assert rig.feed(Flushed(storage=True)) == []


def test_detaching_while_storage_is_emptied() -> None:
    rig = storage()
    delete = rig.one(Delete, rig.feed(Flushed(storage=True)))
    assert rig.feed(DetachWanted()) == [Abandoned(delete.flight)]
    assert rig.feed(DeleteDone(delete.flight)) == [StorageDetached()]


def test_a_flush_that_is_refused_changes_nothing() -> None:
    rig = storage()
    rig.lookup(1, "xyz")
    rig.run(0, "ab")
    rig.arrive(2, "cd")
    rig.feed(PrefetchLimitReached(2))
    prefill = rig.one(Prefill, rig.admit(2))
    before = dict(rig.view.storage_flights)
    assert rig.one(Refused, rig.feed(Flushed(storage=True))).reason == "running"
    assert dict(rig.view.storage_flights) == before
    rig.settle([prefill])


def test_a_full_device_never_waits_for_storage() -> None:
    """What a store and a fetch lock on host can leave the device, and no refusal names them."""
    rig = storage(device=4, host=8)
    rig.arrive(1, "abcd")
    rig.feed(PrefetchLimitReached(1))
    backup = rig.one(Backup, rig.settle_passes(rig.admit(1)))
    store = rig.one(Store, rig.feed(BackupDone(backup.flight)))
    rig.finish(1)
    fetch = rig.fetch(rig.lookup(2, "abcdxy"), 2)
    rig.arrive(3, "qrs")
    rig.feed(PrefetchLimitReached(3))
    prefill = rig.one(Prefill, rig.admit(3))
    rig.settle([prefill])
    rig.arrive(4, "t" * 4)
    rig.feed(PrefetchLimitReached(4))
    refused = rig.one(Refused, rig.admit(4))
    assert (refused.reason, refused.after) == ("no_pages", 0)
    assert {store.flight, fetch.flight} <= set(rig.view.flights)
    recount(rig.view)


def test_host_pages_in_a_store_are_full_for_a_write_back() -> None:
    rig = storage(device=8, host=2, write_policy="write_back")
    rig.run(0, "ab")
    (backup,) = rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    assert isinstance(backup, Backup)
    rig.one(Store, rig.feed(BackupDone(backup.flight)))
    rig.evict("full", 2)
    rig.arrive(1, "cd")
    rig.feed(PrefetchLimitReached(1))
    rig.settle_passes(rig.admit(1))
    rig.finish(1)
    outcomes = rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    assert not any(isinstance(one, Backup) for one in outcomes)
    assert rig.residency() == {"ab": "H"}
    recount(rig.view)


def test_backups_are_not_limited_by_stores() -> None:
    rig = storage(max_backups=1)
    rig.arrive(1, "ab")
    rig.feed(PrefetchLimitReached(1))
    backup = rig.one(Backup, rig.settle_passes(rig.admit(1)))
    rig.one(Store, rig.feed(BackupDone(backup.flight)))
    rig.arrive(2, "cd")
    rig.feed(PrefetchLimitReached(2))
    rig.one(Backup, rig.settle_passes(rig.admit(2)))
