"""Prefetches: look up what the tree lacks when a request arrives, fetch what was found, and attach
what has arrived.

A lookup and the fetch that follows it are one prefetch. Requests that want what a prefetch brings
join it. They are its waiters, in the order of their arrival. If the last of them leaves, the flight
is abandoned: its reply still ends it. The lookup takes no pages; the fetch is the first moment at
which anything is evicted for a prefetch.

    key     |------ known to the tree ------|---- asked: looked up ----|---- not looked up ----|
                                            ^ first_page               ^ limited by distrust and
                                            |---- found ----|            by the budget

    tree    |---- known, with host copies ----|-- known, device only --|
    fetched                                   |--- adopted --|-------- new node --------|
                                              ^ first_page

Nodes are cut as an insertion cuts them, so that each holds a component for all of its positions or
for none. The walk goes from the top down and ends at the first copy that the tree cannot take: what
lies behind it is freed. A cache with components that do not require the whole path takes the pages
only if its end becomes a live boundary.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .actions import (
    NO_REQUEST,
    Abandoned,
    Fetch,
    Lookup,
    Piece,
    Prefetched,
    PrefetchEnd,
    StorageDetached,
)
from .config import UNBOUNDED
from .errors import CallerError, CoreBug
from .events import FetchDone, LookupDone
from .eviction import kept_free, make_host_room, may_publish
from .flights import (
    close_flight,
    flight_of,
    lock,
    lock_for_storage,
    open_flight,
    open_receipt,
    release,
)
from .node import Flight, FlightKind, Leg, Node, Request
from .refusals import whole
from .requests import limit_states
from .state import State, believe, distrust, tells
from .tree import attach, cut, is_there, label_of, match, new_child, probe, start_of, walk
from .types import BACKBONE, HOST, NO_PAGES, FlightId, Key, Pages, PageState

PREFETCHES = (FlightKind.LOOKUP, FlightKind.FETCH)


def open_storage_flight(state: State, kind: FlightKind) -> Flight:
    flight = open_flight(state, kind)
    flight.beliefs_since = state.beliefs_since
    state.storage_flights[flight.id] = flight
    return flight


def close_storage_flight(state: State, flight: Flight) -> None:
    if flight.waiters or state.storage_flights.pop(flight.id, None) is not flight:
        raise CoreBug(f"{flight} is closed and {flight.waiters} wait for it")
    close_flight(state, flight)


def report_detached(state: State) -> None:
    """After a reply: if it was the last one since storage was detached, say so."""
    if not state.attached and not state.storage_flights:
        state.out.append(StorageDetached())


def prefetches(state: State) -> list[Flight]:
    """The lookups and fetches in flight, the oldest first."""
    return [one for one in state.storage_flights.values() if one.kind in PREFETCHES]


def in_flight(state: State, kind: FlightKind) -> int:
    """How many actions of this kind are in flight."""
    return sum(one.kind is kind for one in state.storage_flights.values())


def prefetching_tokens(state: State) -> int:
    """Tokens that are being looked up or fetched."""
    return sum(one.budget_tokens for one in prefetches(state))


def join(state: State, request: Request, flight: Flight) -> None:
    """The request waits for this prefetch now."""
    if request.prefetch or request.admitted or flight.abandoned:
        raise CoreBug(f"request {request.id} is to wait for {flight}")
    request.prefetch = flight.id
    insort(flight.waiters, request.id, key=lambda one: state.requests[one].arrived)
    flight.request = flight.waiters[0]
    state.touched_requests[request.id] = None


def leave(state: State, request: Request) -> None:
    """The request does not wait for its prefetch any more. If nobody else does, the flight is
    abandoned."""
    flight = _stop_waiting(state, request)
    if not flight.waiters:
        abandon(state, flight)


def let_go(state: State, request: Request, reason: PrefetchEnd) -> None:
    """The request stops waiting for its prefetch, and is told so."""
    report(state, request, state.flights[request.prefetch], 0, reason)
    leave(state, request)


def release_waiters(state: State, flight: Flight) -> list[Request]:
    """The prefetch has ended, or another flight goes on with it: its waiters, who wait for nothing
    now."""
    waiters = [state.requests[one] for one in flight.waiters]
    for request in waiters:
        request.prefetch = 0
        state.touched_requests[request.id] = None
    flight.waiters, flight.request = [], NO_REQUEST
    return waiters


def _stop_waiting(state: State, request: Request) -> Flight:
    flight = state.flights.get(request.prefetch)
    if flight is None or request.id not in flight.waiters:
        raise CoreBug(f"request {request.id} does not wait for flight {request.prefetch}")
    flight.waiters.remove(request.id)
    flight.request = flight.waiters[0] if flight.waiters else NO_REQUEST
    request.prefetch = 0
    state.touched_requests[request.id] = None
    return flight


def abandon(state: State, flight: Flight) -> None:
    """Nobody needs what this flight does any more."""
    if not flight.abandoned:
        flight.abandoned = True
        state.out.append(Abandoned(flight.id))


def end_every_wait(state: State, reason: PrefetchEnd) -> None:
    """Storage is flushed or detached: every request that waits for a prefetch is told so, in the
    order of arrival."""
    waiting = [(request, flight) for flight in prefetches(state) for request in flight.waiters]
    waiting.sort(key=lambda one: state.requests[one[0]].arrived)
    for number, flight in waiting:
        report(state, state.requests[number], flight, 0, reason)
        _stop_waiting(state, state.requests[number])


def report(
    state: State, request: Request, flight: Flight, fetched: int, reason: PrefetchEnd
) -> None:
    """Tell a request what became of the prefetch that it waits for."""
    state.out.append(
        Prefetched(
            request.id,
            flight.first_page,
            flight.asked_pages,
            flight.found_pages,
            fetched,
            reason,
        )
    )


def oldest(state: State) -> FlightId:
    """The oldest action for storage in flight; 0 if there is none."""
    return next(iter(state.storage_flights), 0)


Run = tuple[int, int]  # depths in pages: from the first up to, but not including, the second


class Known(NamedTuple):
    """What the tree has of a key up to a depth. path: whole nodes, then the node that is known in
    part, if there is one. depth: how many pages are known."""

    path: list[Node]
    depth: int


def begin_prefetch(state: State, request: Request, again: bool = False) -> None:
    """A request has arrived: look for the pages that the tree lacks, or join a prefetch that does.
    again: it waited for a prefetch that has ended."""
    limit = min(request.match_pages, request.key.pages)
    device, host, depths, _ = probe(state, request.key, limit, request.known_node)
    first, asked = device + host, limit - device - host
    if not state.attached:
        raise CoreBug(f"request {request.id} is to prefetch and storage is detached")
    if not asked:
        if again:
            _decline(state, request, first, 0, "")
        return
    reason = _why_not(state, asked)
    if reason:
        _decline(state, request, first, asked, reason)
        return
    if not request.digests:
        request.digests = tuple(request.key.first(limit).page_digests())
    digests = request.digests[first:]
    flight = _underway(state, first, digests[0])
    if flight is not None:
        join(state, request, flight)
        return
    trusted = next((at for at, one in enumerate(digests) if one in state.distrusted), asked)
    if not _is_enough(state, trusted):
        _decline(state, request, first, asked, "miss")
        return
    count = min(trusted, max(0, _budget_left(state)) // state.config.page_size)
    if not _is_enough(state, count):
        _decline(state, request, first, asked, "budget")
        return
    flight = open_storage_flight(state, FlightKind.LOOKUP)
    flight.first_page, flight.asked_pages = first, count
    flight.digests = digests[:count]
    flight.key = request.key.first(first + count)
    flight.budget_tokens = count * state.config.page_size
    join(state, request, flight)
    state.out.append(
        Lookup(
            flight.id,
            request.id,
            first,
            flight.digests,
            min(count, max(0, depths[BACKBONE] - first)),
            tuple(
                one.window_pages if one.window_pages < UNBOUNDED else 0 for one in state.components
            ),
        )
    )


def lookup_done(state: State, event: LookupDone) -> None:
    flight = flight_of(state, event.flight, FlightKind.LOOKUP)
    check_pages(flight, event.pages, flight.asked_pages)
    waiters = release_waiters(state, flight)
    close_storage_flight(state, flight)
    if waiters:
        flight.found_pages = event.pages
        reason: PrefetchEnd = "too_short" if event.pages else "miss"
        fetch = None
        if _is_enough(state, event.pages):
            fetch, reason = _begin_fetch(state, flight)
        if fetch is None:
            report(state, waiters[0], flight, 0, reason)
            try_again(state, waiters[1:])
        else:
            for request in waiters:
                join(state, request, fetch)
            state.out.append(_fetch_action(state, fetch))
    report_detached(state)


def try_again(state: State, waiters: list[Request]) -> None:
    """The prefetch that these requests joined has ended: each looks for what it still lacks."""
    for request in waiters:
        begin_prefetch(state, request, again=True)


def check_pages(flight: Flight, pages: object, most: int) -> None:
    """Raises CallerError if a reply tells of more pages than the action asked for."""
    whole("pages", pages)
    if not isinstance(pages, int) or not 0 <= pages <= most:
        raise CallerError(f"flight {flight.id}: expected 0 to {most} pages, found {pages}")


def know(state: State, key: Key, end: int) -> Known:
    """What the tree has of the first `end` pages of the key. Changes nothing."""
    path, partial, part = walk(state, key, end)
    depth = (path[-1].end_page if path else 0) + part
    return Known(path if partial is None else [*path, partial], depth)


def key_of(flight: Flight) -> Key:
    """The prefix that a prefetch is about: of the request that began it, whoever waits for it."""
    if flight.key is None:
        raise CoreBug(f"{flight} has no key")
    return flight.key


def missing_runs(state: State, known: Known, end: int) -> list[list[Run]]:
    """By component, the depths that a boundary at page `end` requires and that the tree has on no
    tier, as ascending runs. The run of a state is the page that ends at the boundary."""
    missing: list[list[Run]] = []
    for index, component in enumerate(state.components):
        if not component.positional:
            has = any(is_there(node, index) for node in _ending_at(known, end))
            missing.append([] if has else [(end - 1, end)])
            continue
        low = max(0, end - component.window_pages)
        runs: list[Run] = [(max(low, known.depth), end)] if known.depth < end else []
        stop = known.depth
        for node in reversed(known.path):
            start = max(low, start_of(node, state.stride))
            if start >= stop:
                break
            if not is_there(node, index):
                after = runs.pop()[1] if runs and runs[-1][0] == stop else stop
                runs.append((start, after))
            stop = start
        missing.append(runs[::-1])
    return missing


def _ending_at(known: Known, end: int) -> list[Node]:
    """The node that is known as a whole and ends at this page, if there is one."""
    return [node for node in known.path[-1:] if node.end_page == known.depth == end]


def _why_not(state: State, asked: int) -> PrefetchEnd:
    """Why no prefetch of so many pages may begin; empty if it may."""
    if not all(pool.capacity for pool in state.pools[HOST]):
        return "no_host_pages"
    if not _is_enough(state, asked):
        return "too_short"
    return "flushed" if in_flight(state, FlightKind.DELETE) else ""


def _is_enough(state: State, pages: int) -> bool:
    """Whether so many pages are worth a prefetch."""
    return pages * state.config.page_size >= max(1, state.config.prefetch_threshold_tokens)


def _decline(state: State, request: Request, first: int, asked: int, reason: PrefetchEnd) -> None:
    state.out.append(Prefetched(request.id, first, asked, 0, 0, reason))


def _underway(state: State, depth: int, digest: bytes) -> Flight | None:
    """The oldest prefetch in flight that brings the page at this depth; None if there is none."""
    for flight in prefetches(state):
        at = depth - flight.first_page
        if not flight.abandoned and 0 <= at < len(flight.digests) and flight.digests[at] == digest:
            return flight
    return None


def _budget_left(state: State) -> int:
    """Tokens that may be prefetched besides those in flight."""
    config = state.config
    budget = config.prefetch_budget_tokens or config.host_pages[BACKBONE] * config.page_size
    return budget - prefetching_tokens(state)


def _begin_fetch(state: State, lookup: Flight) -> tuple[Flight | None, PrefetchEnd]:
    """Lock and reserve for what the lookup found. Returns the fetch, or why there is none."""
    first, end, key = lookup.first_page, lookup.first_page + lookup.found_pages, key_of(lookup)
    known = know(state, key, end)
    missing = missing_runs(state, known, end)
    if any(runs and runs[0][0] < first for runs in missing):
        return None, "miss"
    if not any(missing):
        return None, ""
    if state.writes.contiguous and not _comes_to_host(known):
        return None, "no_host_pages"
    locked = _to_lock(state, known, end)
    room = _host_room(state, locked)
    if state.every_end_is_live:
        end = _shortened(missing, room, end)
        missing = [[(one, min(end, to)) for one, to in runs if one < end] for runs in missing]
    needed = [sum(to - one for one, to in runs) for runs in missing]
    fits = all(have >= count for have, count in zip(room, needed, strict=True))
    if not any(needed) or not fits or not _is_enough(state, end - first):
        return None, "no_host_pages"
    flight = open_storage_flight(state, FlightKind.FETCH)
    flight.first_page, flight.digests = first, lookup.digests[: end - first]
    flight.asked_pages, flight.found_pages = lookup.asked_pages, lookup.found_pages
    flight.budget_tokens = (end - first) * state.config.page_size
    flight.key = key.first(end)
    flight.receipt = receipt = open_receipt(state, f"fetch {flight.id}", True)
    for index, nodes in enumerate(locked):
        lock(state, receipt, nodes, HOST, index)
    for index, count in enumerate(needed):
        if count and not make_host_room(state, index, count):
            raise CoreBug(f"{state.pools[HOST][index]}: {count} pages were to be had")
    for index, runs in enumerate(missing):
        for start, stop in runs:
            pages = 1 if not state.components[index].positional else stop - start
            target = state.pools[HOST][index].reserve(pages, flight.id)
            flight.legs.append(Leg(flight, None, index, NO_PAGES, target, start))
    return flight, ""


def _comes_to_host(known: Known) -> bool:
    """Whether the known path is on host, or will be when a backup has ended. If host copies are
    contiguous, what is above the last node is on host as well."""
    return all(
        node.pages[HOST][BACKBONE] is not None
        or any(
            leg.component == BACKBONE and leg.flight.kind is FlightKind.BACKUP for leg in node.legs
        )
        for node in known.path[-1:]
    )


def _to_lock(state: State, known: Known, end: int) -> list[list[Node]]:
    """By component, the nodes whose host copies the fetched pages will be attached to: the known
    path, and of other components what a boundary at page `end` requires."""
    locked = []
    for index, component in enumerate(state.components):
        if component.positional:
            low = end - component.window_pages
            nodes = [one for one in known.path if min(one.end_page, known.depth) > low]
        else:
            nodes = _ending_at(known, end)
        locked.append(known.path if index == BACKBONE else nodes)
    return locked


def _host_room(state: State, locked: list[list[Node]]) -> list[int]:
    """By component, the host pages that can be had when these nodes are locked."""
    room = []
    for index, nodes in enumerate(locked):
        free = state.pools[HOST][index].available - kept_free(state, index)
        for node in nodes:
            held = node.pages[HOST][index]
            if held is not None and not node.locks[HOST][index]:
                free -= len(held)
        room.append(max(0, free))
    return room


def _shortened(missing: list[list[Run]], room: list[int], end: int) -> int:
    """The deepest page up to which there is room for everything that is missing."""
    for runs, left in zip(missing, room, strict=True):
        for start, stop in runs:
            if stop - start > left:
                end = min(end, start + left)
                break
            left -= stop - start
    return end


def _fetch_action(state: State, flight: Flight) -> Fetch:
    first, names = flight.first_page, state.config.components
    pieces = tuple(
        Piece(
            names[leg.component],
            leg.first_page,
            flight.digests[leg.first_page - first : leg.first_page - first + len(leg.target)],
            leg.target,
        )
        for leg in flight.legs
    )
    return Fetch(flight.id, flight.request, first, pieces, len(flight.digests))


def fetch_done(state: State, event: FetchDone) -> None:
    flight = flight_of(state, event.flight, FlightKind.FETCH)
    promised = len(flight.digests)
    check_pages(flight, event.pages, promised)
    waiters = release_waiters(state, flight)
    published = _land(state, flight, event.pages, waiters[0] if waiters else None)
    if event.pages < promised and not flight.abandoned and tells(state, flight):
        distrust(state, flight.digests[event.pages])
    close_storage_flight(state, flight)
    if waiters:
        report(state, waiters[0], flight, published, "short" if event.pages < promised else "")
        try_again(state, waiters[1:])
    report_detached(state)


def _land(state: State, flight: Flight, pages: int, owner: Request | None) -> int:
    """Attach what has arrived and free the rest. Returns how many pages after the first one are in
    the tree with it; 0 if the cache was flushed since."""
    first, end = flight.first_page, flight.first_page + len(flight.digests)
    upto = first + pages if state.every_end_is_live or first + pages == end else first
    published = 0
    if flight.receipt is not None:  # the cache was not flushed since
        release(state, flight.receipt)
        if upto > first and _can_end(state, flight, upto):
            priority = owner.priority if owner is not None else 0
            published = _publish(state, flight, upto, priority)
    for leg in flight.legs:
        pool = state.pools[HOST][leg.component]
        pool.give_back(leg.target[pool.state[leg.target] == PageState.LENT])
    flight.legs.clear()
    return published


def _publish(state: State, flight: Flight, upto: int, priority: int) -> int:
    """Attach what was fetched up to page `upto`. Returns how many pages after the first one could
    be attached, or were there; 0 if this makes no new boundary."""
    first, key, cuts = flight.first_page, key_of(flight), _cuts(state, flight, upto)
    path, arrived = match(state, key, upto), _by_depth(state, flight, upto)
    for at in cuts:
        cut(state, path, at)
    reached = upto
    for node in path:
        if node.end_page > first and not _adopt(state, flight, node, arrived):
            reached = start_of(node, state.stride)
            break
    else:
        known = path[-1].end_page if path else 0
        if known < upto and not _grow(state, flight, path, arrived, (*cuts, upto), priority):
            reached = known
    if reached < upto:
        return max(0, reached - first) if state.every_end_is_live else 0
    if not state.every_end_is_live:
        limit_states(state, path)
    return upto - first


def _cuts(state: State, flight: Flight, upto: int) -> list[int]:
    """Page depths at which nodes must end besides `upto`, ascending."""
    starts = [upto - state.components[index].window_pages for index in state.bounded]
    return sorted({at for at in (flight.first_page, *starts) if 0 < at < upto})


def _by_depth(state: State, flight: Flight, upto: int) -> list[Pages]:
    """By component, the host page that was fetched for each depth after the first page, up to page
    `upto`; -1 where none was. A state is at the depth of the page that ends where it belongs."""
    tables = []
    for index in range(len(state.components)):
        table = np.full(upto - flight.first_page, -1, dtype=np.int64)
        for leg in flight.legs:
            if leg.component == index:
                start = leg.first_page - flight.first_page
                table[start : start + len(leg.target)] = leg.target[: max(0, len(table) - start)]
        tables.append(table)
    return tables


def _pages_for(
    state: State, flight: Flight, arrived: list[Pages], index: int, node: Node
) -> Pages | None:
    """What was fetched of a component for a node; None unless it is there for all positions."""
    positional = state.components[index].positional
    start = start_of(node, state.stride) if positional else node.end_page - 1
    if start < flight.first_page:
        raise CoreBug(f"{node} was not cut at page {flight.first_page}")
    pages = arrived[index][start - flight.first_page : node.end_page - flight.first_page]
    return pages if int(pages.min()) >= 0 else None


def _adopt(state: State, flight: Flight, node: Node, arrived: list[Pages]) -> bool:
    """Give a node what it lacks on host. Returns False if it cannot take it; then nothing behind it
    is attached either."""
    for index in range(len(state.components)):
        if node.pages[HOST][index] is not None:
            continue
        pages = _pages_for(state, flight, arrived, index, node)
        if pages is None:
            if index == BACKBONE and state.writes.contiguous:
                return False
        elif not may_publish(state, flight, node, index):
            return False
        else:
            _attach(state, flight, node, index, pages)
    return True


def _grow(
    state: State,
    flight: Flight,
    path: list[Node],
    arrived: list[Pages],
    ends: Sequence[int],
    priority: int,
) -> bool:
    """Append new nodes to the path up to the last of these ends. Returns False if the tree cannot
    take them: pages before them are missing, on any tier or on host where the policy asks for it.
    """
    known, first, key = path[-1].end_page if path else 0, flight.first_page, key_of(flight)
    if known < first or int(arrived[BACKBONE][known - first :].min()) < 0:
        return False
    if path and state.writes.contiguous and path[-1].pages[HOST][BACKBONE] is None:
        return False
    for end in ends:
        if end <= known:
            continue
        parent = path[-1] if path else state.root
        rows = key.raw[known * key.stride : end * key.stride]
        label = rows[: key.stride] if path else label_of(key.namespace, rows[: key.stride])
        if label in parent.children:
            raise CoreBug(f"{parent} has a child already where {flight} adds one")
        node = new_child(state, parent, rows, label)
        node.last_use = [state.tick] * len(state.components)
        node.priority = priority
        for index in range(len(state.components)):
            pages = _pages_for(state, flight, arrived, index, node)
            if pages is not None:
                _attach(state, flight, node, index, pages)
        path.append(node)
        known = end
    return True


def _attach(state: State, flight: Flight, node: Node, index: int, pages: Pages) -> None:
    attach(state, node, HOST, index, pages)
    if index == BACKBONE:
        lock_for_storage(state, node)
    if state.attached and tells(state, flight):
        believe(state, node, index)


def _can_end(state: State, flight: Flight, upto: int) -> bool:
    """Whether page `upto` will be a live boundary with what was fetched."""
    if state.every_end_is_live:
        return True
    known = know(state, key_of(flight), upto)
    arrived = _by_depth(state, flight, upto)
    return all(
        start >= flight.first_page
        and bool((arrived[index][start - flight.first_page : stop - flight.first_page] >= 0).all())
        for index, runs in enumerate(missing_runs(state, known, upto))
        for start, stop in runs
    )
