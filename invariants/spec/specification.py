"""The rule for each event: given the same events, the core answers with the same outcomes.

Page numbers and flight numbers are names: the specification has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core.actions import NO_REQUEST, Cached, Outcome, Released, Restarted
from hicache.core.config import Config
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DeleteDone,
    DetachWanted,
    Event,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
    StorageAttached,
    StoreDone,
    TimePassed,
    UnpinWanted,
)
from hicache.core.types import Key

from . import (
    admission,
    attaching,
    copies,
    eviction,
    fetches,
    growth,
    marks,
    matching,
    prefetching,
    publishing,
    second_chance,
    stores,
    wants,
)
from .cache import Cache
from .insertion import insert
from .kinds import FULL
from .records import DEVICE, HOST, Node, Request
from .refusals import refuse


class Specification:
    """One specified cache. Expects events that the core accepted."""

    def __init__(self, config: Config) -> None:
        self.cache = Cache(config)

    def handle(self, event: Event) -> list[Outcome]:
        self.cache.out = []
        marks.begin_event(self.cache)
        second_chance.remember(self.cache)
        RULES[type(event)](self.cache, event)
        if type(event) in COMES_TO:
            wants.hold_pinned(self.cache, COMES_TO[type(event)])
        return self.cache.out


# -- a request waits


def arrive(cache: Cache, event: Arrived) -> None:
    request = Request(event.request, event.key, event.length, event.match_pages, event.priority)
    cache.requests[request.number] = request
    matching.report_match(cache, request)
    if cache.attached:
        prefetching.begin(cache, request)


def want_match(cache: Cache, event: MatchWanted) -> None:
    matching.report_match(cache, cache.requests[event.request])


def admit(cache: Cache, event: AdmitWanted) -> None:
    admission.admit(cache, cache.requests[event.request], event.chunk)


def prefetch_limit_reached(cache: Cache, event: PrefetchLimitReached) -> None:
    prefetching.stop_waiting(cache, cache.requests[event.request])


# -- a request runs


def prefill_done(cache: Cache, event: PrefillDone) -> None:
    """A pass ended. What it loaded has landed, and what it computed goes into the tree."""
    flight = cache.flights[event.flight]
    request = flight.request
    if request is not None and event.ok and request.load is not None:
        copies.land(cache, request.load)
    copies.end(cache, flight)
    if request is None:
        return
    request.prefill = None
    if not event.ok:
        restart(cache, request)
        return
    start, request.computed = request.computed, flight.end_token
    for kind, tokens, slot in flight.checkpoints:
        request.states[kind][slot] = tokens
    new = growth.boundaries_of_pass(cache, request, start, flight.end_token)
    path = insert(cache, request, request.key, new, ending=False)
    growth.release_behind(cache, request, request.computed)
    tables, slots = growth.tables_of(cache, request), growth.slots_of(cache, request)
    cache.say(Cached(request.number, request.shared, tables, slots))
    copies.copy_after_use(cache, path)
    stores.after_use(cache, path)


def continue_prefill(cache: Cache, event: ContinueWanted) -> None:
    growth.continue_prefill(cache, cache.requests[event.request], event.chunk)


def want_pages(cache: Cache, event: PagesWanted) -> None:
    growth.grow(cache, cache.requests[event.request], event.length, event.computed_tokens)


# -- a request ends


def finish(cache: Cache, event: Finished) -> None:
    request = cache.requests.pop(event.request)
    _commit(cache, request, event.key, event.length)


def retract(cache: Cache, event: Retracted) -> None:
    """The request gives everything back and waits again, with what it generated in its prompt."""
    request = cache.requests[event.request]
    committed = event.key.first(event.committed_tokens // cache.config.page_size)
    _commit(cache, request, committed, event.committed_tokens)
    _wait_again(cache, request, event.key, event.length, event.match_pages, request.may_load)


def abort(cache: Cache, event: Aborted) -> None:
    request = cache.requests.pop(event.request)
    prefetching.let_go(cache, request)
    _withdraw(cache, request)
    cache.say(Released(event.request))


def restart(cache: Cache, request: Request) -> None:
    """A load or a pass failed. The request waits again, and will compute instead of loading."""
    _withdraw(cache, request)
    key, length, pages = request.key, request.length, request.match_pages
    _wait_again(cache, request, key, length, pages, may_load=False)
    cache.say(Restarted(request.number))


def _commit(cache: Cache, request: Request, key: Key, tokens: int) -> None:
    growth.note_decoded(cache, request, tokens)
    new = growth.boundaries_at_end(cache, request, key.pages, tokens)
    path = insert(cache, request, key, new, ending=True)
    copies.copy_after_use(cache, path)
    _withdraw(cache, request)
    cache.say(Released(request.number))
    stores.after_use(cache, path)


def _withdraw(cache: Cache, request: Request) -> None:
    """The request has no pages and holds nothing any more. What is in flight for it goes on for
    nobody; a pass takes over what the request held, since it still reads it."""
    if request not in cache.running:
        return
    cache.running.remove(request)
    if request.load is not None:
        request.load.request = None
    if request.prefill is not None:
        request.prefill.request = None
        request.prefill.hold = request.hold


def _wait_again(
    cache: Cache, request: Request, key: Key, length: int, match_pages: int, may_load: bool
) -> None:
    number, priority = request.number, request.priority
    cache.requests[number] = Request(number, key, length, match_pages, priority, may_load)


# -- a copy ends


def load_done(cache: Cache, event: LoadDone) -> None:
    flight = cache.flights[event.flight]
    if not event.ok:
        if flight.request is not None:
            restart(cache, flight.request)
        copies.end(cache, flight)
        return
    copies.land(cache, flight)
    nodes = copies.landed_nodes(cache, flight)
    copies.end(cache, flight)
    if cache.config.exchange_pages:
        eviction.give_up_host(cache, nodes)


def backup_done(cache: Cache, event: BackupDone) -> None:
    flight = cache.flights[event.flight]
    nodes = copies.nodes_of(cache, flight)
    copies.end_backup(cache, flight, event.ok)
    if event.ok:
        stores.after_backup(cache, nodes)


# -- storage


def lookup_done(cache: Cache, event: LookupDone) -> None:
    fetches.after_lookup(cache, cache.storage.pop(event.flight), event.pages)
    attaching.say_detached(cache)


def fetch_done(cache: Cache, event: FetchDone) -> None:
    publishing.after_fetch(cache, cache.storage.pop(event.flight), event.pages)
    attaching.say_detached(cache)


def store_done(cache: Cache, event: StoreDone) -> None:
    stores.after_store(cache, cache.storage.pop(event.flight), event.pages)
    attaching.say_detached(cache)


def delete_done(cache: Cache, event: DeleteDone) -> None:
    del cache.storage[event.flight]
    stores.store_next(cache)
    attaching.say_detached(cache)


def attach_storage(cache: Cache, event: StorageAttached) -> None:
    attaching.attach(cache)


def detach_storage(cache: Cache, event: DetachWanted) -> None:
    attaching.detach(cache)


# -- on demand


def evict(cache: Cache, event: EvictWanted) -> None:
    kind = cache.config.components.index(event.component)
    if event.tier == DEVICE:
        eviction.evict_device(cache, kind, event.pages)
    else:
        eviction.evict_host(cache, kind, event.pages)


def flush(cache: Cache, event: Flushed) -> None:
    """Forgets everything that is cached, unless a request runs or a pass is in flight. What is in
    flight goes on, for nobody."""
    passes = sum(flight.to is None for flight in cache.flights.values())
    busy = max(len(cache.running), passes)
    if busy:
        refuse(cache, NO_REQUEST, "running", busy, 0)
        return
    attaching.flush(cache)
    for node in cache.nodes():
        for tier in (DEVICE, HOST):
            if node.has(tier, FULL):
                cache.tell_routers(tier, node, slice(None), stored=False)
    cache.root = Node(None, "", [], len(cache.kinds))
    cache.ghosts, cache.buried = [[] for _ in cache.kinds], [[] for _ in cache.kinds]
    for pin in cache.pins.values():
        pin.hold, pin.held = set(), 0
    for flight in cache.flights.values():
        flight.hold, flight.frees = set(), {}
    if event.storage:
        attaching.delete_all(cache)


RULES: dict[type, Callable[[Cache, Any], None]] = {
    Arrived: arrive,
    MatchWanted: want_match,
    AdmitWanted: admit,
    PrefillDone: prefill_done,
    ContinueWanted: continue_prefill,
    PagesWanted: want_pages,
    Finished: finish,
    Retracted: retract,
    Aborted: abort,
    LoadDone: load_done,
    BackupDone: backup_done,
    EvictWanted: evict,
    Flushed: flush,
    PrefetchLimitReached: prefetch_limit_reached,
    LookupDone: lookup_done,
    FetchDone: fetch_done,
    StoreDone: store_done,
    DeleteDone: delete_done,
    StorageAttached: attach_storage,
    DetachWanted: detach_storage,
    TimePassed: wants.time_passed,
    PinWanted: wants.pin,
    UnpinWanted: wants.unpin,
}
# The events with which copies come to a tier: at their end, pins hold what came.
COMES_TO = {
    PrefillDone: DEVICE,
    Finished: DEVICE,
    Retracted: DEVICE,
    LoadDone: DEVICE,
    BackupDone: HOST,
    FetchDone: HOST,
}
