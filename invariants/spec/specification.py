"""The rule for each event: given the same events, the core answers with the same outcomes.

Page numbers and transfer numbers are names: the specification has its own.
"""

from collections.abc import Callable
from typing import Any

from hicache.core import events
from hicache.core.actions import Cached, Outcome, Released, Restarted
from hicache.core.types import Key

from . import (
    admission,
    attaching,
    copies,
    eviction,
    fetches,
    growth,
    matching,
    pins,
    prefetching,
    publishing,
    stores,
)
from .cache import Cache
from .insertion import publish
from .kinds import FULL
from .records import DEVICE, HOST, Request
from .refusals import say_refused


def handle(cache: Cache, event: events.Event) -> list[Outcome]:
    """Answers an event that the core accepted."""
    cache.out = []
    RULES[type(event)](cache, event)
    if type(event) in COMES_TO:
        pins.apply_pins(cache, COMES_TO[type(event)])
    return cache.out


# -- a request waits


def arrives(cache: Cache, event: events.Arrived) -> None:
    request = Request(event.request, event.key, event.length, event.match_pages, event.priority)
    cache.requests[request.number] = request
    matching.tell_what_is_cached(cache, request)
    if cache.attached:
        prefetching.look_for_rest(cache, request)


def asks_what_is_cached(cache: Cache, event: events.MatchWanted) -> None:
    matching.tell_what_is_cached(cache, cache.requests[event.request])


def admit(cache: Cache, event: events.AdmitWanted) -> None:
    admission.start(cache, cache.requests[event.request], event.chunk)


def prefetch_timeout(cache: Cache, event: events.PrefetchLimitReached) -> None:
    prefetching.goes_without(cache, cache.requests[event.request])


# -- a request runs


def pass_ends(cache: Cache, event: events.PrefillDone) -> None:
    """A pass ended. What it loaded has landed, and what it computed goes into the tree."""
    transfer = cache.transfers[event.transfer]
    request = transfer.request
    copies.end(cache, transfer)
    if request is None:
        return
    if not event.ok:
        restart(cache, request)
        return
    if request.load is not None:
        copies.arrive(cache, request.load)
    start, request.computed = request.computed, transfer.end_token
    for kind, tokens, slot in transfer.checkpoints:
        request.states[kind][slot] = tokens
    new = growth.where_others_start(cache, request, start, transfer.end_token)
    path = publish(cache, request, request.key, new, ending=False)
    growth.give_back_passed(cache, request, request.computed)
    tables, slots = growth.tables_of(cache, request), growth.slots_of(cache, request)
    cache.say(Cached(request.number, request.shared, tables, slots))
    copies.after_use(cache, path)
    stores.were_used(cache, path)


def continue_prefill(cache: Cache, event: events.ContinueWanted) -> None:
    growth.next_chunk(cache, cache.requests[event.request], event.chunk)


def grow(cache: Cache, event: events.PagesWanted) -> None:
    growth.more_pages(cache, cache.requests[event.request], event.length, event.computed_tokens)


# -- a request ends


def ends(cache: Cache, event: events.Finished) -> None:
    request = cache.requests.pop(event.request)
    _keep_what_it_computed(cache, request, event.key, event.length)


def is_put_back(cache: Cache, event: events.Retracted) -> None:
    """The request gives everything back and waits again, with what it generated in its prompt."""
    request = cache.requests[event.request]
    committed = event.key.first(event.committed_tokens // cache.config.page_size)
    _keep_what_it_computed(cache, request, committed, event.committed_tokens)
    _queue_again(cache, request, event, request.may_load)


def goes_away(cache: Cache, event: events.Aborted) -> None:
    request = cache.requests.pop(event.request)
    prefetching.leave(cache, request)
    _give_all_back(cache, request)
    cache.say(Released(event.request))


def restart(cache: Cache, request: Request) -> None:
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
    nobody; its last pass takes over what it held, since that is still read."""
    cache.running = [item for item in cache.running if item is not request]
    for transfer in growth.passes_of(cache, request)[-1:]:
        transfer.hold = request.hold
    for transfer in cache.transfers.values():
        if transfer.request is request:
            transfer.request = None


def _queue_again(
    cache: Cache, request: Request, now: Request | events.Retracted, may_load: bool
) -> None:
    """The request waits, with the prompt that it has now, as if it had just come."""
    known = now.key, now.length, now.match_pages, request.priority, may_load
    cache.requests[request.number] = Request(request.number, *known)


# -- a copy ends


def load_ends(cache: Cache, event: events.LoadDone) -> None:
    transfer = cache.transfers[event.transfer]
    if not event.ok:
        if transfer.request is not None:
            restart(cache, transfer.request)
        copies.end(cache, transfer)
        return
    copies.arrive(cache, transfer)
    copies.end(cache, transfer)
    if cache.config.exchange_pages:
        nodes = [node for node in cache.nodes if node.any_in_use(transfer.hold, HOST)]
        eviction.end_exchange(cache, nodes)


def backup_ends(cache: Cache, event: events.BackupDone) -> None:
    transfer = cache.transfers[event.transfer]
    nodes = copies.nodes_of(cache, transfer)
    copies.end_backup(cache, transfer, event.ok)
    if event.ok:
        stores.came_to_host(cache, nodes)


# -- storage


def lookup_ends(cache: Cache, event: events.LookupDone) -> None:
    fetches.storage_has(cache, cache.storage.pop(event.transfer), event.pages)
    attaching.say_when_unused(cache)


def fetch_ends(cache: Cache, event: events.FetchDone) -> None:
    publishing.storage_brought(cache, cache.storage.pop(event.transfer), event.pages)
    attaching.say_when_unused(cache)


def store_ends(cache: Cache, event: events.StoreDone) -> None:
    stores.storage_took(cache, cache.storage.pop(event.transfer), event.pages)
    attaching.say_when_unused(cache)


def delete_ends(cache: Cache, event: events.DeleteDone) -> None:
    del cache.storage[event.transfer]
    stores.begin_stores(cache)
    attaching.say_when_unused(cache)


def storage_comes(cache: Cache, event: events.StorageAttached) -> None:
    attaching.begin(cache)


def storage_goes(cache: Cache, event: events.DetachWanted) -> None:
    attaching.stop(cache)


# -- on demand


def pages_are_wanted(cache: Cache, event: events.EvictWanted) -> None:
    kind = cache.config.components.index(event.component)
    eviction.free_pages(cache, event.tier, kind, event.pages)


def forget_all(cache: Cache, event: events.Flushed) -> None:
    """Forgets everything that is cached, unless a request runs or a pass is in flight. What is in
    transfer goes on, for nobody."""
    passes = sum(transfer.to is None for transfer in cache.transfers.values())
    busy = max(len(cache.running), passes)
    if busy:
        say_refused(cache, "running", busy, 0)
        return
    attaching.forget_tree(cache)
    for node in cache.nodes:
        for tier in (DEVICE, HOST):
            if node.has(tier, FULL):
                cache.tell_routers(tier, node, stored=False)
    cache.begin_tree()
    for pin in cache.pins.values():
        pin.hold, pin.held_pages = set(), 0
    for transfer in cache.transfers.values():
        transfer.hold, transfer.frees = set(), {}
    if event.storage:
        attaching.empty(cache)


RULES: dict[type, Callable[[Cache, Any], None]] = {
    events.Arrived: arrives,
    events.MatchWanted: asks_what_is_cached,
    events.AdmitWanted: admit,
    events.PrefillDone: pass_ends,
    events.ContinueWanted: continue_prefill,
    events.PagesWanted: grow,
    events.Finished: ends,
    events.Retracted: is_put_back,
    events.Aborted: goes_away,
    events.LoadDone: load_ends,
    events.BackupDone: backup_ends,
    events.EvictWanted: pages_are_wanted,
    events.Flushed: forget_all,
    events.PrefetchLimitReached: prefetch_timeout,
    events.LookupDone: lookup_ends,
    events.FetchDone: fetch_ends,
    events.StoreDone: store_ends,
    events.DeleteDone: delete_ends,
    events.StorageAttached: storage_comes,
    events.DetachWanted: storage_goes,
    events.TimePassed: pins.time_passed,
    events.PinWanted: pins.pin,
    events.UnpinWanted: pins.unpin,
}
# The events with which copies come to a tier: at their end, pins hold what came.
COMES_TO = {
    events.PrefillDone: DEVICE,
    events.Finished: DEVICE,
    events.Retracted: DEVICE,
    events.LoadDone: DEVICE,
    events.BackupDone: HOST,
    events.FetchDone: HOST,
}
