"""The books of storage: who waits for which prefetch, what was acknowledged, and what is pinned."""

from __future__ import annotations

from typing import Any

import pytest

from hicache.core.actions import Backup, Fetch, Lookup, Prefill, Store
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    EvictWanted,
    FetchDone,
    Finished,
    LookupDone,
    PrefillDone,
    StorageAttached,
    StoreDone,
)
from hicache.core.types import Key, Tier
from invariants.base import Violation
from invariants.books.book import Book
from invariants.books.pins import known_path
from invariants.books.tags import digests_of
from invariants.watch import Watch
from tests.configs import changed, configured

from .life import Life, with_storage
from .test_planted import hybrid, tiny

PROMPT, OTHER = [1, 2, 3, 4], [1, 2, 3, 9]


class Watched:
    """A core of one-token pages under all checks. Each reply is given by the test."""

    def __init__(self, **settings: Any) -> None:
        self.core = Core(configured(1, (8,), (8,), storage=True, **settings))
        self.watch = Watch()

    def __call__(self, event: Any) -> list[Any]:
        self.watch.on_event(event, self.core.view)
        outcomes = self.core.handle(event)
        self.watch.on_outcomes(event, outcomes, self.core.view)
        return outcomes

    @property
    def book(self) -> Book:
        assert self.watch.book is not None
        return self.watch.book

    def arrive(self, request: int, tokens: list[int]) -> list[Any]:
        return self(Arrived(request, Key.from_tokens(tokens, 1), len(tokens) + 1, len(tokens)))


def flight_of(outcomes: list[Any], kind: type) -> int:
    return next(int(item.flight) for item in outcomes if type(item) is kind)


def cached(watched: Watched, tokens: list[int]) -> list[Any]:
    """A request computes the tokens, ends, and is on host. Returns the outcomes of the backup."""
    outcomes = watched.arrive(90, tokens)
    for item in outcomes:
        if type(item) is Lookup:
            watched(LookupDone(item.flight, 0))
    outcomes = watched(AdmitWanted(90, 100))
    outcomes = watched(PrefillDone(flight_of(outcomes, Prefill)))
    outcomes += watched(Finished(90, Key.from_tokens(tokens, 1), len(tokens)))
    return watched(BackupDone(flight_of(outcomes, Backup)))


def test_a_lookup_and_the_fetch_that_follows_it_count_once() -> None:
    watched = Watched()
    first = flight_of(watched.arrive(1, PROMPT), Lookup)
    watched.arrive(2, OTHER)
    storage = watched.book.storage
    assert storage.tokens(1) == len(PROMPT)
    fetch = flight_of(watched(LookupDone(first, 3)), Fetch)
    assert storage.tokens(1) == 3
    watched(Aborted(1))
    assert storage.tokens(1) == 3
    outcomes = watched(FetchDone(fetch, 3))
    assert [type(item).__name__ for item in outcomes] == ["Prefetched"]
    assert storage.tokens(1) == 0
    watched.watch.audit(watched.core.view)


def test_what_was_acknowledged_is_forgotten_when_storage_is_attached_again() -> None:
    watched = Watched()
    watched(StoreDone(flight_of(cached(watched, PROMPT), Store), 4))
    digests = digests_of(Key.from_tokens(PROMPT, 1))
    assert watched.book.storage.acknowledged == {(0, digest) for digest in digests}
    watched(StorageAttached())
    assert not watched.book.storage.acknowledged
    watched.watch.finish(watched.core.view)


def test_a_fetch_pins_the_host_copies_that_it_continues() -> None:
    watched = Watched()
    watched(StoreDone(flight_of(cached(watched, [1, 2]), Store), 2))
    watched(EvictWanted(Tier.DEVICE, "full", 8))
    lookup = flight_of(watched.arrive(1, PROMPT), Lookup)
    fetch = flight_of(watched(LookupDone(lookup, 2)), Fetch)
    book = watched.book
    assert int((book.host.locks > 0).sum()) == 2
    path = known_path(book.nodes, book.tickets.open[fetch].prompt)
    assert [(known.mirror.end_page, known.depth) for known in path] == [(2, 2)]
    watched(FetchDone(fetch, 2))
    assert not book.host.locks.any()
    watched.watch.audit(watched.core.view)


def test_a_wrong_digest_is_found_whatever_the_core_believes() -> None:
    watched = Watched()
    event = Arrived(1, Key.from_tokens(PROMPT, 1), len(PROMPT) + 1, len(PROMPT))
    watched.watch.on_event(event, watched.core.view)
    bent = [
        item._replace(digests=item.digests[::-1]) if type(item) is Lookup else item
        for item in watched.core.handle(event)
    ]
    with pytest.raises(Violation) as found:
        watched.watch.on_outcomes(event, bent, watched.core.view)
    assert found.value.check == "KEY-RT"


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_lives_with_a_storage_keep_every_check(policy: str) -> None:
    for seed, config in enumerate((tiny(policy=policy), hybrid(policy))):
        life = Life(with_storage(changed(config, max_stores=2), fail=10), seed)
        life.run(120)
        life.end()
        assert life.hand.events > 120
