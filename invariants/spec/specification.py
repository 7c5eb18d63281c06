"""The rule for each event: given the same events, the core answers with the same outcomes.

Page numbers and flight numbers are names: the specification has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core.actions import Cached, Outcome, Released, Restarted
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
    matching,
    prefetching,
    publishing,
    stores,
    wants,
)
from .cache import Cache
from .insertion import publish
from .kinds import FULL, Policies
from .records import DEVICE, HOST, Node, Request
from .refusals import say_refused


class Specification:
    """One specified cache. Expects events that the core accepted."""

    def __init__(self, config: Config, policies: Policies | None = None) -> None:
        self.cache = Cache(config, policies)

    def handle(self, event: Event) -> list[Outcome]:
        self.cache.out = []
        RULES[type(event)](self.cache, event)
        if type(event) in COMES_TO:
            wants.pins_take_hold(self.cache, COMES_TO[type(event)])
        return self.cache.out


# -- a request waits


def comes(cache: Cache, event: Arrived) -> None:
    request = Request(event.request, event.key, event.length, event.match_pages, event.priority)
    cache.requests[request.number] = request
    matching.tell_what_is_cached(cache, request)
    if cache.attached:
        prefetching.look_for_rest(cache, request)


def asks_what_is_cached(cache: Cache, event: MatchWanted) -> None:
    matching.tell_what_is_cached(cache, cache.requests[event.request])


def is_to_start(cache: Cache, event: AdmitWanted) -> None:
    admission.start(cache, cache.requests[event.request], event.chunk)


def waits_no_longer(cache: Cache, event: PrefetchLimitReached) -> None:
    prefetching.goes_without(cache, cache.requests[event.request])


# -- a request runs


def pass_ends(cache: Cache, event: PrefillDone) -> None:
    """A pass ended. What it loaded has landed, and what it computed goes into the tree."""
    flight = cache.flights[event.flight]
    request = flight.request
    copies.end(cache, flight)
    if request is None:
        return
    if not event.ok:
        begins_anew(cache, request)
        return
    if request.load is not None:
        copies.arrive(cache, request.load)
    start, request.computed = request.computed, flight.end_token
    for kind, tokens, slot in flight.checkpoints:
        request.states[kind][slot] = tokens
    new = growth.where_others_start(cache, request, start, flight.end_token)
    path = publish(cache, request, request.key, new, ending=False)
    growth.give_back_passed(cache, request, request.computed)
    tables, slots = growth.tables_of(cache, request), growth.slots_of(cache, request)
    cache.say(Cached(request.number, request.shared, tables, slots))
    copies.after_use(cache, path)
    stores.were_used(cache, path)


def goes_on(cache: Cache, event: ContinueWanted) -> None:
    growth.next_chunk(cache, cache.requests[event.request], event.chunk)


def needs_more(cache: Cache, event: PagesWanted) -> None:
    growth.more_pages(cache, cache.requests[event.request], event.length, event.computed_tokens)


# -- a request ends


def ends(cache: Cache, event: Finished) -> None:
    request = cache.requests.pop(event.request)
    _keep_what_it_computed(cache, request, event.key, event.length)


def is_put_back(cache: Cache, event: Retracted) -> None:
    """The request gives everything back and waits again, with what it generated in its prompt."""
    request = cache.requests[event.request]
    committed = event.key.first(event.committed_tokens // cache.config.page_size)
    _keep_what_it_computed(cache, request, committed, event.committed_tokens)
    _queue_again(cache, request, event, request.may_load)


def goes_away(cache: Cache, event: Aborted) -> None:
    request = cache.requests.pop(event.request)
    prefetching.leave(cache, request)
    _give_all_back(cache, request)
    cache.say(Released(event.request))


def begins_anew(cache: Cache, request: Request) -> None:
    """A load or a pass failed. The request waits again, and will compute instead of loading."""
    _give_all_back(cache, request)
    _queue_again(cache, request, request, may_load=False)
    cache.say(Restarted(request.number))


def _keep_what_it_computed(cache: Cache, request: Request, key: Key, tokens: int) -> None:
    growth.keep_last_state(cache, request, tokens)
    new = growth.where_it_ends(cache, request, key.pages, tokens)
    path = publish(cache, request, key, new, ending=True)
    copies.after_use(cache, path)
    _give_all_back(cache, request)
    cache.say(Released(request.number))
    stores.were_used(cache, path)


def _give_all_back(cache: Cache, request: Request) -> None:
    """The request has no pages and holds nothing any more. What is in flight for it goes on for
    nobody; a pass takes over what the request held, since it still reads it."""
    cache.running = [one for one in cache.running if one is not request]
    for flight in cache.flights.values():
        if flight.request is request:
            flight.request = None
            flight.hold = flight.hold if flight.to is not None else request.hold


def _queue_again(cache: Cache, request: Request, now: Request | Retracted, may_load: bool) -> None:
    """The request waits, with the prompt that it has now, as if it had just come."""
    known = now.key, now.length, now.match_pages, request.priority, may_load
    cache.requests[request.number] = Request(request.number, *known)


# -- a copy ends


def load_ends(cache: Cache, event: LoadDone) -> None:
    flight = cache.flights[event.flight]
    if not event.ok:
        if flight.request is not None:
            begins_anew(cache, flight.request)
        copies.end(cache, flight)
        return
    copies.arrive(cache, flight)
    nodes = [node for node in cache.nodes() if node.any_held(flight.hold, HOST)]
    copies.end(cache, flight)
    if cache.config.exchange_pages:
        eviction.end_exchange(cache, nodes)


def backup_ends(cache: Cache, event: BackupDone) -> None:
    flight = cache.flights[event.flight]
    nodes = copies.nodes_of(cache, flight)
    copies.end_backup(cache, flight, event.ok)
    if event.ok:
        stores.came_to_host(cache, nodes)


# -- storage


def lookup_ends(cache: Cache, event: LookupDone) -> None:
    fetches.storage_has(cache, cache.storage.pop(event.flight), event.pages)
    attaching.say_when_unused(cache)


def fetch_ends(cache: Cache, event: FetchDone) -> None:
    publishing.storage_brought(cache, cache.storage.pop(event.flight), event.pages)
    attaching.say_when_unused(cache)


def store_ends(cache: Cache, event: StoreDone) -> None:
    stores.storage_took(cache, cache.storage.pop(event.flight), event.pages)
    attaching.say_when_unused(cache)


def delete_ends(cache: Cache, event: DeleteDone) -> None:
    del cache.storage[event.flight]
    stores.begin_stores(cache)
    attaching.say_when_unused(cache)


def storage_comes(cache: Cache, event: StorageAttached) -> None:
    attaching.begin(cache)


def storage_goes(cache: Cache, event: DetachWanted) -> None:
    attaching.stop(cache)


# -- on demand


def pages_are_wanted(cache: Cache, event: EvictWanted) -> None:
    kind = cache.config.components.index(event.component)
    eviction.free_pages(cache, event.tier, kind, event.pages)


def forget_all(cache: Cache, event: Flushed) -> None:
    """Forgets everything that is cached, unless a request runs or a pass is in flight. What is in
    flight goes on, for nobody."""
    passes = sum(flight.to is None for flight in cache.flights.values())
    busy = max(len(cache.running), passes)
    if busy:
        say_refused(cache, "running", busy, 0)
        return
    attaching.forget_tree(cache)
    for node in cache.nodes():
        for tier in (DEVICE, HOST):
            if node.has(tier, FULL):
                cache.tell_routers(tier, node, stored=False)
    cache.root = Node(None, "", [], len(cache.kinds))
    for pin in cache.pins.values():
        pin.hold, pin.held = set(), 0
    for flight in cache.flights.values():
        flight.hold, flight.frees = set(), {}
    if event.storage:
        attaching.empty(cache)


RULES: dict[type, Callable[[Cache, Any], None]] = {
    Arrived: comes,
    MatchWanted: asks_what_is_cached,
    AdmitWanted: is_to_start,
    PrefillDone: pass_ends,
    ContinueWanted: goes_on,
    PagesWanted: needs_more,
    Finished: ends,
    Retracted: is_put_back,
    Aborted: goes_away,
    LoadDone: load_ends,
    BackupDone: backup_ends,
    EvictWanted: pages_are_wanted,
    Flushed: forget_all,
    PrefetchLimitReached: waits_no_longer,
    LookupDone: lookup_ends,
    FetchDone: fetch_ends,
    StoreDone: store_ends,
    DeleteDone: delete_ends,
    StorageAttached: storage_comes,
    DetachWanted: storage_goes,
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
