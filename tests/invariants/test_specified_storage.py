"""The third tier as the specification states it: one short story for each rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hicache.core.actions import (
    Abandoned,
    Backup,
    Delete,
    Fetch,
    KvStored,
    Lookup,
    Matched,
    Prefetched,
    Refused,
    Released,
    StorageDetached,
    Store,
)
from hicache.core.components import mamba, swa
from hicache.core.config import Config
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    DeleteDone,
    DetachWanted,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LookupDone,
    MatchWanted,
    PrefetchLimitReached,
    PrefillDone,
    StorageAttached,
    StoreDone,
)
from hicache.core.types import Key, Tier
from invariants.spec.specification import Specification

CONFIG = Config(1, (8,), (8,), storage=True)
PROMPT = range(1, 6)


class Told:
    """A specification that is told what happens, by names of requests and flights."""

    def __init__(self, **settings: Any) -> None:
        self.specification = Specification(replace(CONFIG, **settings))
        self.last: list[Any] = []

    def __call__(self, event: Any) -> list[Any]:
        self.last = self.specification.handle(event)
        return self.last

    def arrive(self, request: int, rows: Any = PROMPT) -> list[Any]:
        key = Key.from_page_ids(list(rows))
        return self(Arrived(request, key, key.pages, key.pages))[1:]

    def live(self, request: int, rows: Any = PROMPT) -> list[Any]:
        """One whole life of a request, of which storage has nothing; its copies to host end well.
        Returns the stores that begin."""
        key, said = Key.from_page_ids(list(rows)), self.arrive(request, rows)
        for lookup in [one for one in said if isinstance(one, Lookup)]:
            self(LookupDone(lookup.flight))
        said = self(AdmitWanted(request, key.pages))
        said = self(PrefillDone(said[-1].flight))
        backups = [one for one in said if isinstance(one, Backup)]
        said += self(Finished(request, key, key.pages))
        for copy in backups:
            said += self(BackupDone(copy.flight))
        return [one for one in said if isinstance(one, Store)]

    def fetched(self, request: int, pages: int, arrive: int = -1, rows: Any = PROMPT) -> list[Any]:
        """The request arrives, storage has so many pages and delivers them, or fewer."""
        (lookup,) = self.arrive(request, rows)
        (fetch,) = self(LookupDone(lookup.flight, pages))
        return self(FetchDone(fetch.flight, fetch.pages if arrive < 0 else arrive))


def test_what_storage_has_is_fetched_and_then_loaded() -> None:
    told = Told(kv_events=True)
    (lookup,) = told.arrive(1)
    assert lookup[1:3] == (1, 0)
    assert (len(lookup.digests), lookup.known_pages, lookup.trailing_pages) == (5, 0, (0,))
    (fetch,) = told(LookupDone(lookup.flight, 3))
    assert isinstance(fetch, Fetch)
    assert [piece[:3] for piece in fetch.pieces] == [("full", 0, lookup.digests[:3])]
    stored, ended = told(FetchDone(fetch.flight, 3))
    assert stored == KvStored(Tier.HOST, lookup.digests[:3])
    assert ended == Prefetched(1, 0, 5, 3, 3, "")
    assert told(MatchWanted(1)) == [Matched(1, 0, 3, (3,))]


def test_a_short_fetch_brings_what_arrived_and_its_gap_is_not_asked_for_again() -> None:
    told = Told()
    assert told.fetched(1, 5, arrive=2) == [Prefetched(1, 0, 5, 5, 2, "short")]
    assert told.arrive(2) == [Prefetched(2, 2, 3, 0, 0, "miss")]
    told(StorageAttached())
    (lookup,) = told.arrive(3)
    assert lookup.first_page == 2


@pytest.mark.parametrize(
    ("settings", "ended"),
    [
        ({"prefetch_threshold_tokens": 6}, (5, 0, 0, "too_short")),
        ({"prefetch_threshold_tokens": 3, "prefetch_budget_tokens": 2}, (5, 0, 0, "budget")),
        ({"storage": False}, None),
    ],
)
def test_a_prefetch_that_is_not_begun(settings: dict[str, Any], ended: Any) -> None:
    said = Told(**settings).arrive(1)
    assert said == ([] if ended is None else [Prefetched(1, 0, *ended)])


def test_the_budget_shortens_a_prefetch_and_comes_back() -> None:
    told = Told(prefetch_budget_tokens=7)
    (first,) = told.arrive(1)
    (second,) = told.arrive(2, range(21, 26))
    assert (len(first.digests), len(second.digests)) == (5, 2)
    assert told.arrive(3, range(31, 36)) == [Prefetched(3, 0, 5, 0, 0, "budget")]
    assert told(LookupDone(first.flight, 0)) == [Prefetched(1, 0, 5, 0, 0, "miss")]
    (third,) = told.arrive(4, range(41, 46))
    assert len(third.digests) == 5


def test_a_request_waits_for_the_flight_of_another() -> None:
    told = Told()
    (lookup,) = told.arrive(1)
    assert told.arrive(2, [*PROMPT, 6]) == []
    (fetch,) = told(LookupDone(lookup.flight, 5))
    assert told(Aborted(1)) == [Released(1)]
    first, second = told.arrive(3, [1, 9]), told(FetchDone(fetch.flight, 5))
    assert first == []
    assert second[0] == Prefetched(2, 0, 5, 5, 5, "")
    assert isinstance(second[1], Lookup)
    assert second[1][1:3] == (3, 1)


def test_a_flight_that_nobody_waits_for_is_abandoned_and_still_brings_its_pages() -> None:
    told = Told()
    (lookup,) = told.arrive(1)
    (fetch,) = told(LookupDone(lookup.flight, 4))
    told.arrive(2)
    late = Prefetched(1, 0, 5, 4, 0, "late")
    assert told(PrefetchLimitReached(1)) == [late]
    assert told(PrefetchLimitReached(1)) == []
    assert told(Aborted(2)) == [Abandoned(fetch.flight), Released(2)]
    assert told(FetchDone(fetch.flight, 2)) == []
    (lookup,) = told.arrive(3)
    assert lookup.first_page == 2
    assert told(PrefetchLimitReached(3)) == [
        Prefetched(3, 2, 3, 0, 0, "late"),
        Abandoned(lookup.flight),
    ]
    assert told(LookupDone(lookup.flight, 3)) == []


def test_an_admission_waits_or_goes_without() -> None:
    told = Told()
    (lookup,) = told.arrive(1)
    refused = Refused(1, "fetching", 0, 0, -1, "full", lookup.flight)
    assert told(AdmitWanted(1, 5)) == [refused]
    told = Told(prefetch_policy="best_effort")
    (lookup,) = told.arrive(1)
    late, abandoned, *_ = told(AdmitWanted(1, 5))
    assert late == Prefetched(1, 0, 5, 0, 0, "late")
    assert abandoned == Abandoned(lookup.flight)


def test_host_without_room_shortens_a_fetch() -> None:
    told = Told(host_pages=(3,))
    (lookup,) = told.arrive(1)
    assert len(lookup.digests) == 3  # the budget: what host has
    (fetch,) = told(LookupDone(lookup.flight, 3))
    told = Told(host_pages=(3,), prefetch_budget_tokens=9)
    (lookup,) = told.arrive(1)
    (fetch,) = told(LookupDone(lookup.flight, 5))
    assert fetch.pages == 3
    (other,) = told.arrive(2, range(21, 23))
    assert told(LookupDone(other.flight, 2)) == [Prefetched(2, 0, 2, 2, 0, "no_host_pages")]
    assert told(FetchDone(fetch.flight, 3)) == [Prefetched(1, 0, 5, 5, 3, "")]


def test_others_may_compute_the_pages_meanwhile() -> None:
    told = Told()
    (lookup,) = told.arrive(1)
    told.arrive(2)
    told(PrefetchLimitReached(2))
    (*_, prefill) = told(AdmitWanted(2, 5))
    told(PrefillDone(prefill.flight))
    assert told(LookupDone(lookup.flight, 4)) == [Prefetched(1, 0, 5, 4, 0, "")]


def test_what_comes_to_host_is_stored_and_believed() -> None:
    told = Told(kv_events=True)
    (store,) = told.live(1)
    assert [(piece.component, piece.first_page) for piece in store.pieces] == [("full", 0)]
    digests = tuple(Key.from_page_ids(list(PROMPT)).page_digests())
    assert told(StoreDone(store.flight, 5)) == [KvStored(Tier.STORAGE, digests)]
    assert told.live(2) == []
    told(StorageAttached())
    (again,) = told.live(3)
    assert again.pieces[0].digests == digests


def test_a_store_that_fails_is_tried_again_until_the_next_use() -> None:
    told = Told(store_tries=2, kv_events=True)
    (store,) = told.live(1)
    (again,) = told(StoreDone(store.flight, 4))
    assert isinstance(again, Store)
    assert told(StoreDone(again.flight, 0)) == []
    assert len(told.live(2)) == 1


def test_stores_are_bounded_in_number() -> None:
    told = Told(max_stores=1)
    (store,) = told.live(1)
    assert told.live(2, range(11, 13)) == []
    (following,) = told(StoreDone(store.flight, 5))
    assert following.pieces[0].digests == tuple(Key.from_page_ids([11, 12]).page_digests())


def test_a_store_holds_what_it_reads() -> None:
    told = Told()
    (store,) = told.live(1)
    assert told(EvictWanted(Tier.HOST, "full", 5)) == []
    told(StoreDone(store.flight, 0))
    store = told.last[-1]
    told(DetachWanted())
    told(StoreDone(store.flight, 0))
    assert len(told(EvictWanted(Tier.HOST, "full", 5))) == 1


def test_half_of_a_split_store_is_believed() -> None:
    told = Told()
    (store,) = told.live(1)
    told.live(2, [1, 2, 9])  # divides the node of the store after two pages
    (again,) = told(StoreDone(store.flight, 3))
    assert again.pieces[0].first_page == 2


def test_a_flush_forgets_and_deletes() -> None:
    told = Told()
    (store,) = told.live(1)
    (lookup,) = told.arrive(2, range(11, 15))
    ended, *abandoned, delete = told(Flushed(storage=True))
    assert ended == Prefetched(2, 0, 4, 0, 0, "flushed")
    assert abandoned == [Abandoned(store.flight), Abandoned(lookup.flight)]
    assert isinstance(delete, Delete)
    assert told.arrive(3) == [Prefetched(3, 0, 5, 0, 0, "flushed")]
    assert told(LookupDone(lookup.flight, 4)) == []
    assert told(StoreDone(store.flight, 5)) == []
    assert told.live(4) == []  # nothing is stored before everything is deleted
    assert isinstance(told(DeleteDone(delete.flight))[0], Store)


def test_a_fetch_for_a_flushed_tree_brings_nothing() -> None:
    told = Told()
    (lookup,) = told.arrive(1)
    (fetch,) = told(LookupDone(lookup.flight, 5))
    assert told(Flushed())[1:] == [Abandoned(fetch.flight)]
    assert told(FetchDone(fetch.flight, 5)) == []
    assert told(MatchWanted(1)) == [Matched(1, 0, 0, (0,))]
    assert told.specification.cache.free(Tier.HOST, 0) == 8


def test_a_detachment_ends_with_the_last_reply() -> None:
    told = Told()
    assert told(DetachWanted()) == [StorageDetached()]
    assert told.arrive(1) == []
    told(StorageAttached())
    (lookup,) = told.arrive(2)
    (fetch,) = told(LookupDone(lookup.flight, 5))
    (other,) = told.arrive(3, range(11, 13))
    assert told(DetachWanted()) == [
        Prefetched(2, 0, 5, 5, 0, "detached"),
        Prefetched(3, 0, 2, 0, 0, "detached"),
        Abandoned(fetch.flight),
        Abandoned(other.flight),
    ]
    refused = Refused(-1, "detaching", 2, 0, -1, "full", fetch.flight)
    assert told(StorageAttached()) == [refused]
    assert told(LookupDone(other.flight, 2)) == []
    assert told(FetchDone(fetch.flight, 5)) == [StorageDetached()]
    assert told(MatchWanted(2)) == [Matched(2, 0, 5, (5,))]
    assert told(StorageAttached()) == []


def test_a_hybrid_gets_its_boundary_or_nothing() -> None:
    settings = {
        "components": ("full", "swa", "mamba"),
        "device_pages": (8, 8, 8),
        "host_pages": (8, 8, 8),
        "settings": (swa.Settings(2), mamba.Settings(1)),
    }
    told = Told(**settings)
    (lookup,) = told.arrive(1)
    assert lookup.trailing_pages == (0, 2, 1)
    (fetch,) = told(LookupDone(lookup.flight, 4))
    named = [(piece.component, piece.first_page, len(piece.pages)) for piece in fetch.pieces]
    assert named == [("full", 0, 4), ("swa", 2, 2), ("mamba", 3, 1)]
    assert told(FetchDone(fetch.flight, 3)) == [Prefetched(1, 0, 5, 4, 0, "short")]
    told(StorageAttached())
    assert told.fetched(2, 4) == [Prefetched(2, 0, 5, 4, 4, "")]
    assert told(MatchWanted(2)) == [Matched(2, 0, 4, (4, 4, 4))]
    told = Told(**{**settings, "host_pages": (8, 8, 0)})
    assert told.arrive(1) == [Prefetched(1, 0, 5, 0, 0, "no_host_pages")]
