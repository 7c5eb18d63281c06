"""The end of a fetch: nodes adopt the host pages that have arrived, and the others are freed.

    tree    |---- known, with host copies ----|-- known, device only --|
    fetched                                   |--- adopted --|-------- new node --------|
                                              ^ first_page

The nodes are cut as an insertion cuts them, so that each holds a component for all of its positions
or for none. The walk goes from the top down and ends at the first copy that the tree cannot take:
what lies behind it is freed. A cache with components that do not require the whole path takes the
pages only if its end becomes a live boundary.

Does not decide what is fetched; see `prefetch`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backup import may_publish
from ..errors import CoreBug
from ..events import FetchDone
from ..flights import flight_of
from ..radix.locks import lock_for_storage, release
from ..radix.marks import mark_new
from ..radix.matching import cut, match
from ..radix.node import Flight, FlightKind, Node
from ..radix.tree import attach, label_of, new_child, start_of
from ..requests.checkpoints import limit_states
from ..requests.record import Request
from ..state import State
from ..types import BACKBONE, HOST, Pages, PageState
from .flights import close_storage_flight, release_waiters, report, report_detached
from .prefetch import check_pages, key_of, know, missing_runs, try_again
from .queue import believe, distrust, tells


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
        if state.marked:
            mark_new(state, node)
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
