"""Prefetches: begin a lookup when a request arrives, and fetch what the lookup found.

A prefetch looks for the pages after the deepest boundary that the tree has on any tier. The lookup
takes no pages. The fetch reserves host pages and locks the host copies that its pages will be
attached to; it is the first moment at which anything is evicted for a prefetch.

    key     |------ known to the tree ------|---- asked: looked up ----|---- not looked up ----|
                                            ^ first_page               ^ limited by distrust and
                                            |---- found ----|            by the budget
                                                            ^ end

Does not attach what was fetched, see `fetched`, or end waits, see `flights`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..actions import Fetch, Lookup, Piece, Prefetched, PrefetchEnd
from ..components.base import UNBOUNDED
from ..errors import CallerError, CoreBug
from ..events import LookupDone
from ..eviction import kept_free, make_host_room
from ..flights import flight_of
from ..radix.locks import lock, open_receipt
from ..radix.matching import probe, walk
from ..radix.node import Flight, FlightKind, Leg, Node
from ..radix.tree import start_of
from ..requests.record import Request
from ..state import State
from ..types import BACKBONE, HOST, NO_PAGES, Key
from ..validation import whole
from .flights import (
    close_storage_flight,
    in_flight,
    join,
    open_storage_flight,
    prefetches,
    prefetching_tokens,
    release_waiters,
    report,
    report_detached,
)

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
            has = any(_is_there(node, index) for node in _ending_at(known, end))
            missing.append([] if has else [(end - 1, end)])
            continue
        low = max(0, end - component.window_pages)
        runs: list[Run] = [(max(low, known.depth), end)] if known.depth < end else []
        stop = known.depth
        for node in reversed(known.path):
            start = max(low, start_of(node, state.stride))
            if start >= stop:
                break
            if not _is_there(node, index):
                after = runs.pop()[1] if runs and runs[-1][0] == stop else stop
                runs.append((start, after))
            stop = start
        missing.append(runs[::-1])
    return missing


def _ending_at(known: Known, end: int) -> list[Node]:
    """The node that is known as a whole and ends at this page, if there is one."""
    return [node for node in known.path[-1:] if node.end_page == known.depth == end]


def _is_there(node: Node, index: int) -> bool:
    return any(side[index] is not None for side in node.pages)


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
