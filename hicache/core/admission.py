"""A request's way in and out: arrive, match, be seated or refused, grow, leave.

Seating is all or nothing. In this order, because taking pages may evict what the decision rests on:

    match -> decide what to load -> lock -> make room -> take -> write the decision down

A refusal releases the locks and leaves nothing else behind but splits (and drains, which go on).
"""

from __future__ import annotations

import numpy as np

from .actions import (
    NO_REQUEST,
    Cached,
    Granted,
    Matched,
    RefusalReason,
    Refused,
    Released,
    Restarted,
    Seated,
)
from .backup import consider
from .errors import CallerError
from .events import (
    Aborted,
    Admitted,
    Arrived,
    Continued,
    Finished,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from .insertion import insert
from .locks import lock, open_receipt, release
from .matching import anchors, match, probe
from .node import Flight, Node, Receipt, Request
from .reclaim import make_device_room
from .state import State
from .transfers import (
    begin_load,
    begin_prefill,
    close_flight,
    flight_of,
    land,
    lock_for_load,
    open_flight,
    orphan_flights,
)
from .tree import BACKBONE
from .types import NO_PAGES, Key, Pages, RequestId, Tier


def arrive(state: State, event: Arrived) -> None:
    if event.request in state.requests or event.request < 0:
        raise CallerError(f"request {event.request}: expected a new id from 0 up")
    _check_prompt(state, event.key, event.length, event.match_pages)
    state.stride = event.key.stride
    request = Request(event.request, event.key, event.length, event.match_pages)
    state.requests[request.id] = request
    state.touched_requests[request.id] = None
    _report_match(state, request)


def want_match(state: State, event: MatchWanted) -> None:
    _report_match(state, _waiting(state, event.request))


def admit(state: State, event: Admitted) -> None:
    request = _waiting(state, event.request)
    if event.chunk < 1:
        raise CallerError(f"chunk: expected at least 1 token, found {event.chunk}")
    pool = state.pools[Tier.DEVICE][BACKBONE]
    total = -(-request.length // state.config.page_size)
    if total > pool.capacity:
        _refuse(state, request.id, "too_large", total, pool.capacity)
        return
    path = match(state, request.key, request.match_pages)
    device, best = anchors(state, path)
    path, reused = path[:best], path[:device]
    if not _worth_loading(state, request, path[device:]):
        path = reused
    if any(leg.flight.kind == "load" for node in path[device:] for leg in node.legs):
        _refuse(state, request.id, "arriving", total, pool.free)
        return
    receipt = open_receipt(state, f"request {request.id}")
    lock(state, receipt, reused, Tier.DEVICE)
    flight = _open_load(state, request, path) if len(path) > device else None
    short = total - (reused[-1].end if reused else 0)
    if not _take_room(state, request.id, short):
        release(state, receipt)
        if flight is not None:
            close_flight(state, flight)
        return
    _seat(state, request, receipt, reused, path, flight, short)
    begin_prefill(state, request, event.chunk)


def proceed(state: State, event: Continued) -> None:
    request = _seated(state, event.request)
    if request.computed >= request.length:
        raise CallerError(f"request {request.id}: its prompt of {request.length} is computed")
    begin_prefill(state, request, event.chunk)


def prefill_done(state: State, event: PrefillDone) -> None:
    flight = flight_of(state, event.flight, "prefill")
    request = state.requests.get(flight.request)
    if request is not None and event.ok and request.load:
        land(state, state.flights[request.load])
    close_flight(state, flight)
    if request is None:
        return
    state.touched_requests[request.id] = None
    request.prefill = 0
    if not event.ok:
        restart(state, request)
        return
    request.computed = flight.end
    pages = min(request.key.pages, request.computed // state.config.page_size)
    path = insert(state, request, request.key, pages)
    state.out.append(Cached(request.id, pages, request.table))
    consider(state, path)


def want_pages(state: State, event: PagesWanted) -> None:
    request = _seated(state, event.request)
    total = -(-event.length // state.config.page_size)
    short = total - len(request.table)
    capacity = state.pools[Tier.DEVICE][BACKBONE].capacity
    if total > capacity:
        _refuse(state, request.id, "too_large", total, capacity)
        return
    if short > 0:
        if not _take_room(state, request.id, short, preempt=True):
            return
        _extend(state, request, short)
    state.out.append(Granted(request.id, request.table))


def finish(state: State, event: Finished) -> None:
    request = _seated(state, event.request)
    _check_committed(state, request, event.key, event.length)
    _leave(state, request, event.key, event.length)
    del state.requests[request.id]


def retract(state: State, event: Retracted) -> None:
    request = _seated(state, event.request)
    _check_prompt(state, event.key, event.length, event.match_pages)
    committed = event.key.first(event.committed // state.config.page_size)
    _check_committed(state, request, committed, event.committed)
    _leave(state, request, committed, event.committed)
    state.requests[request.id] = Request(
        request.id, event.key, event.length, event.match_pages, may_load=request.may_load
    )


def abort(state: State, event: Aborted) -> None:
    request = state.requests.get(event.request)
    if request is None:
        raise CallerError(f"request {event.request}: expected a live request, found none")
    _withdraw(state, request)
    del state.requests[request.id]
    state.out.append(Released(request.id))


def restart(state: State, request: Request) -> None:
    """Its load or prefill failed: what it has computed is not to be trusted. It waits again."""
    _withdraw(state, request)
    state.requests[request.id] = Request(
        request.id, request.key, request.length, request.match_pages, may_load=False
    )
    state.out.append(Restarted(request.id))


def _report_match(state: State, request: Request) -> None:
    device, host = probe(state, request.key, request.match_pages)
    state.out.append(Matched(request.id, device, host))


def _worth_loading(state: State, request: Request, nodes: list[Node]) -> bool:
    config = state.config
    pages = sum(len(node.key) for node in nodes) // state.stride
    allowed = not config.load_quota_pages or pages <= config.load_quota_pages
    return request.may_load and allowed and pages >= max(1, config.load_threshold_pages)


def _open_load(state: State, request: Request, path: list[Node]) -> Flight:
    flight = open_flight(state, "load", request)
    lock_for_load(state, flight, path)
    return flight


def _take_room(state: State, request: RequestId, count: int, preempt: bool = False) -> bool:
    """Whether `count` device pages are free now; if not, the refusal says what to do."""
    pool = state.pools[Tier.DEVICE][BACKBONE]
    if pool.free + pool.evictable >= count and make_device_room(state, count):
        return True
    waiting = any(flight.request == NO_REQUEST for flight in state.flights.values())
    reason: RefusalReason = "draining" if waiting else "no_pages"
    victim = next(reversed(state.running)) if preempt and not waiting else NO_REQUEST
    _refuse(state, request, reason, count, pool.free + pool.evictable, victim)
    return False


def _refuse(
    state: State,
    request: RequestId,
    reason: RefusalReason,
    needed: int,
    available: int,
    preempt: RequestId = NO_REQUEST,
) -> None:
    state.out.append(Refused(request, reason, needed, available, preempt))


def _seat(
    state: State,
    request: Request,
    receipt: Receipt,
    reused: list[Node],
    path: list[Node],
    flight: Flight | None,
    short: int,
) -> None:
    request.receipt, request.seated = receipt, True
    state.running[request.id] = request
    held = [node.pages[Tier.DEVICE][BACKBONE] for node in reused]
    shared = np.concatenate([pages for pages in held if pages is not None]) if held else NO_PAGES
    request.table, request.shared = shared, len(shared)
    state.tick += 1
    for node in path:
        node.last_use = state.tick
        state.touched[node.id] = node
    for node in reused:
        node.hits += 1
    host_pages = (path[-1].end if path else 0) - request.shared
    pool = state.pools[Tier.DEVICE][BACKBONE]
    targets = pool.reserve(host_pages, flight.id) if flight is not None else NO_PAGES
    fresh = pool.take(short - host_pages, request.id)
    request.table = _frozen(np.concatenate((shared, targets, fresh)))
    request.computed = min(request.length, (request.shared + host_pages) * state.config.page_size)
    state.touched_requests[request.id] = None
    computed = request.length - request.computed
    state.out.append(Seated(request.id, request.shared, host_pages, computed))
    if flight is not None:
        begin_load(state, request, flight, path[len(reused) :])


def _extend(state: State, request: Request, count: int) -> None:
    fresh = state.pools[Tier.DEVICE][BACKBONE].take(count, request.id)
    request.table = _frozen(np.concatenate((request.table, fresh)))
    state.touched_requests[request.id] = None


def _leave(state: State, request: Request, key: Key, length: int) -> None:
    """Committed pages enter the tree, the rest goes back, and the locks end."""
    path = insert(state, request, key, key.pages)
    consider(state, path)
    _withdraw(state, request)
    state.out.append(Released(request.id))


def _withdraw(state: State, request: Request) -> None:
    """The request holds nothing any more; what is in flight for it ends without it."""
    state.touched_requests[request.id] = None
    if not request.seated:
        return
    del state.running[request.id]
    handed_over = orphan_flights(state, request)
    own = request.table[request.shared + request.loading :]
    state.pools[Tier.DEVICE][BACKBONE].give_back(own)
    if request.receipt is not None and not handed_over:
        release(state, request.receipt)


def _check_prompt(state: State, key: Key, length: int, match_pages: int) -> None:
    if length < 1:
        raise CallerError(f"length: expected at least 1 token, found {length}")
    if key.stride < 1 or key.stride % 8:
        raise CallerError(f"key: expected rows of whole 8-byte words, found {key.stride} bytes")
    if not _is_text(key.namespace):
        raise CallerError(f"namespace: expected text that UTF-8 can hold, found {key.namespace!r}")
    if state.stride and key.stride != state.stride:
        raise CallerError(
            f"key: expected rows of {state.stride} bytes like every key before, "
            f"found {key.stride}; one core takes one page size and one kind of key"
        )
    most = -(-length // state.config.page_size)
    if key.pages > most or not 0 <= match_pages <= most:
        raise CallerError(
            f"key: expected at most {most} pages for {length} tokens, "
            f"found {key.pages} with match_pages {match_pages}"
        )


def _check_committed(state: State, request: Request, key: Key, length: int) -> None:
    room = len(request.table) * state.config.page_size
    most = -(-length // state.config.page_size)
    if request.computed < request.length and length > request.computed:
        raise CallerError(
            f"request {request.id}: expected at most the {request.computed} tokens that its "
            f"prefill has computed, found {length}"
        )
    if not request.shared <= key.pages <= most or length > room:
        raise CallerError(
            f"request {request.id}: expected {request.shared} to {most} committed pages and at "
            f"most {room} tokens, found {key.pages} pages and {length} tokens"
        )
    known = request.key.first(request.shared).raw
    same = (key.namespace, key.stride) == (request.key.namespace, request.key.stride)
    if not same or not key.raw.startswith(known):
        raise CallerError(f"request {request.id}: its key no longer starts with its prompt")


def _is_text(namespace: str) -> bool:
    try:
        namespace.encode()
    except UnicodeEncodeError:
        return False
    return True


def _waiting(state: State, request_id: RequestId) -> Request:
    request = state.requests.get(request_id)
    if request is None or request.seated:
        found = "none" if request is None else "a seated one"
        raise CallerError(f"request {request_id}: expected a waiting request, found {found}")
    return request


def _seated(state: State, request_id: RequestId) -> Request:
    request = state.running.get(request_id)
    if request is None or request.prefill:
        found = "none" if request is None else "one whose prefill is in flight"
        raise CallerError(f"request {request_id}: expected an idle seated request, found {found}")
    return request


def _frozen(pages: Pages) -> Pages:
    pages.flags.writeable = False
    return pages
