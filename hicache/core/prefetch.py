"""Prefetches: look up what the tree lacks when a request arrives, fetch what was found, and attach
what has arrived.

A lookup and the fetch that follows it are one prefetch. Requests that join it are its waiters, in
the order of their arrival. If the last of them leaves, the transfer is abandoned: its reply still
ends it. The fetch is the first moment at which anything is evicted for a prefetch.

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
from .node import BACKUP, DELETE, FETCH, LOOKUP, Node, Request, Segment, Transfer, TransferKind
from .refusals import check_integer
from .requests import limit_states
from .state import State, believe, distrust, tells
from .transfers import (
    close_transfer,
    lock,
    lock_for_storage,
    open_receipt,
    open_transfer,
    release,
    transfer_of,
)
from .tree import attach, cut, is_there, label_of, match, new_child, probe, start_of, walk
from .types import BACKBONE, HOST, NO_PAGES, Key, Pages, PageState, TransferId

PREFETCHES = (LOOKUP, FETCH)


def open_storage_transfer(state: State, kind: TransferKind) -> Transfer:
    transfer = open_transfer(state, kind)
    transfer.beliefs_since = state.beliefs_since
    state.storage_transfers[transfer.id] = transfer
    return transfer


def close_storage_transfer(state: State, transfer: Transfer) -> None:
    if transfer.waiters or state.storage_transfers.pop(transfer.id, None) is not transfer:
        raise CoreBug(f"{transfer} is closed and {transfer.waiters} wait for it")
    close_transfer(state, transfer)


def report_detached(state: State) -> None:
    """After a reply: if it was the last one since storage was detached, say so."""
    if not state.attached and not state.storage_transfers:
        state.out.append(StorageDetached())


def prefetches(state: State) -> list[Transfer]:
    """The lookups and fetches in flight, the oldest first."""
    return [item for item in state.storage_transfers.values() if item.kind in PREFETCHES]


def in_flight(state: State, kind: TransferKind) -> int:
    """How many actions of this kind are in flight."""
    return sum(transfer.kind is kind for transfer in state.storage_transfers.values())


def prefetching_tokens(state: State) -> int:
    """Tokens that are being looked up or fetched."""
    return sum(prefetch.budget_tokens for prefetch in prefetches(state))


def join(state: State, request: Request, transfer: Transfer) -> None:
    """The request waits for this prefetch now."""
    if request.prefetch or request.admitted or transfer.abandoned:
        raise CoreBug(f"request {request.id} is to wait for {transfer}")
    request.prefetch = transfer.id
    insort(transfer.waiters, request.id, key=lambda number: state.requests[number].arrived)
    transfer.request = transfer.waiters[0]
    state.touched_requests[request.id] = None


def leave(state: State, request: Request) -> None:
    """The request stops waiting for its prefetch. If nobody else waits, the transfer is
    abandoned."""
    transfer = _stop_waiting(state, request)
    if not transfer.waiters:
        abandon(state, transfer)


def release_prefetch(state: State, request: Request, reason: PrefetchEnd) -> None:
    """The request stops waiting for its prefetch, and is told so."""
    report(state, request, state.transfers[request.prefetch], 0, reason)
    leave(state, request)


def release_waiters(state: State, transfer: Transfer) -> list[Request]:
    """The prefetch has ended, or another transfer goes on with it: its waiters, who wait for
    nothing now."""
    waiters = [state.requests[waiter] for waiter in transfer.waiters]
    for request in waiters:
        request.prefetch = 0
        state.touched_requests[request.id] = None
    transfer.waiters, transfer.request = [], NO_REQUEST
    return waiters


def _stop_waiting(state: State, request: Request) -> Transfer:
    transfer = state.transfers.get(request.prefetch)
    if transfer is None or request.id not in transfer.waiters:
        raise CoreBug(f"request {request.id} does not wait for transfer {request.prefetch}")
    transfer.waiters.remove(request.id)
    transfer.request = transfer.waiters[0] if transfer.waiters else NO_REQUEST
    request.prefetch = 0
    state.touched_requests[request.id] = None
    return transfer


def abandon(state: State, transfer: Transfer) -> None:
    """Nobody needs what this transfer does any more."""
    if not transfer.abandoned:
        transfer.abandoned = True
        state.out.append(Abandoned(transfer.id))


def end_every_wait(state: State, reason: PrefetchEnd) -> None:
    """Storage is flushed or detached: every request that waits for a prefetch is told so, in the
    order of arrival."""
    waiting = [(request, item) for item in prefetches(state) for request in item.waiters]
    waiting.sort(key=lambda pair: state.requests[pair[0]].arrived)
    for number, transfer in waiting:
        report(state, state.requests[number], transfer, 0, reason)
        _stop_waiting(state, state.requests[number])


def report(
    state: State, request: Request, transfer: Transfer, fetched: int, reason: PrefetchEnd
) -> None:
    """Tell a request what became of the prefetch that it waits for."""
    state.out.append(
        Prefetched(
            request.id,
            transfer.first_page,
            transfer.asked_pages,
            transfer.found_pages,
            fetched,
            reason,
        )
    )


def oldest(state: State) -> TransferId:
    """The oldest action for storage in flight; 0 if there is none."""
    return next(iter(state.storage_transfers), 0)


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
    first, number = device + host, limit - device - host
    if not state.attached:
        raise CoreBug(f"request {request.id} is to prefetch and storage is detached")
    if not number:
        if again:
            _decline(state, request, first, 0, "")
        return
    reason = _why_not(state, number)
    if reason:
        _decline(state, request, first, number, reason)
        return
    if not request.digests:
        request.digests = tuple(request.key.first(limit).page_digests())
    digests = request.digests[first:]
    transfer = _underway(state, first, digests[0])
    if transfer is not None:
        join(state, request, transfer)
        return
    trusted = next((at for at, digest in enumerate(digests) if digest in state.distrusted), number)
    if not _is_enough(state, trusted):
        _decline(state, request, first, number, "miss")
        return
    count = min(trusted, max(0, _budget_left(state)) // state.config.page_size)
    if not _is_enough(state, count):
        _decline(state, request, first, number, "budget")
        return
    transfer = open_storage_transfer(state, LOOKUP)
    transfer.first_page, transfer.asked_pages = first, count
    transfer.digests = digests[:count]
    transfer.key = request.key.first(first + count)
    transfer.budget_tokens = count * state.config.page_size
    join(state, request, transfer)
    state.out.append(
        Lookup(
            transfer.id,
            request.id,
            first,
            transfer.digests,
            min(count, max(0, depths[BACKBONE] - first)),
            tuple(
                component.window_pages if component.window_pages < UNBOUNDED else 0
                for component in state.components
            ),
        )
    )


def lookup_done(state: State, event: LookupDone) -> None:
    transfer = transfer_of(state, event.transfer, LOOKUP)
    check_pages(transfer, event.pages, transfer.asked_pages)
    waiters = release_waiters(state, transfer)
    close_storage_transfer(state, transfer)
    if waiters:
        transfer.found_pages = event.pages
        reason: PrefetchEnd = "too_short" if event.pages else "miss"
        fetch = None
        if _is_enough(state, event.pages):
            fetch, reason = _begin_fetch(state, transfer)
        if fetch is None:
            report(state, waiters[0], transfer, 0, reason)
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


def check_pages(transfer: Transfer, pages: object, most: int) -> None:
    """Raises CallerError if a reply tells of more pages than the action asked for."""
    check_integer("pages", pages)
    if not isinstance(pages, int) or not 0 <= pages <= most:
        raise CallerError(f"transfer {transfer.id}: expected 0 to {most} pages, found {pages}")


def know(state: State, key: Key, end: int) -> Known:
    """What the tree has of the first `end` pages of the key. Changes nothing."""
    path, partial, part = walk(state, key, end)
    depth = (path[-1].end_page if path else 0) + part
    return Known(path if partial is None else [*path, partial], depth)


def key_of(transfer: Transfer) -> Key:
    """The prefix that a prefetch is about: of the request that began it, whoever waits for it."""
    if transfer.key is None:
        raise CoreBug(f"{transfer} has no key")
    return transfer.key


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


def _why_not(state: State, number: int) -> PrefetchEnd:
    """Why no prefetch of so many pages may begin; empty if it may."""
    if not all(pool.capacity for pool in state.pools[HOST]):
        return "no_host_pages"
    if not _is_enough(state, number):
        return "too_short"
    return "flushed" if in_flight(state, DELETE) else ""


def _is_enough(state: State, pages: int) -> bool:
    """Whether so many pages are worth a prefetch."""
    return pages * state.config.page_size >= max(1, state.config.prefetch_threshold_tokens)


def _decline(state: State, request: Request, first: int, number: int, reason: PrefetchEnd) -> None:
    state.out.append(Prefetched(request.id, first, number, 0, 0, reason))


def _underway(state: State, depth: int, digest: bytes) -> Transfer | None:
    """The oldest prefetch in flight that brings the page at this depth; None if there is none."""
    for transfer in prefetches(state):
        at = depth - transfer.first_page
        if (
            not transfer.abandoned
            and 0 <= at < len(transfer.digests)
            and transfer.digests[at] == digest
        ):
            return transfer
    return None


def _budget_left(state: State) -> int:
    """Tokens that may be prefetched besides those in flight."""
    config = state.config
    budget = config.prefetch_budget_tokens or config.host_pages[BACKBONE] * config.page_size
    return budget - prefetching_tokens(state)


def _begin_fetch(state: State, lookup: Transfer) -> tuple[Transfer | None, PrefetchEnd]:
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
    free_pages = _free_host_pages(state, locked)
    if state.every_end_is_live:
        end = _shortened(missing, free_pages, end)
        missing = [
            [(number, min(end, to)) for number, to in runs if number < end] for runs in missing
        ]
    needed = [sum(to - number for number, to in runs) for runs in missing]
    fits = all(have >= count for have, count in zip(free_pages, needed, strict=True))
    if not any(needed) or not fits or not _is_enough(state, end - first):
        return None, "no_host_pages"
    transfer = open_storage_transfer(state, FETCH)
    transfer.first_page, transfer.digests = first, lookup.digests[: end - first]
    transfer.asked_pages, transfer.found_pages = lookup.asked_pages, lookup.found_pages
    transfer.budget_tokens = (end - first) * state.config.page_size
    transfer.key = key.first(end)
    transfer.receipt = receipt = open_receipt(state, f"fetch {transfer.id}", True)
    for index, nodes in enumerate(locked):
        lock(state, receipt, nodes, HOST, index)
    for index, count in enumerate(needed):
        if count and not make_host_room(state, index, count):
            raise CoreBug(f"{state.pools[HOST][index]}: {count} pages were to be had")
    for index, runs in enumerate(missing):
        for start, stop in runs:
            pages = 1 if not state.components[index].positional else stop - start
            target = state.pools[HOST][index].reserve(pages, transfer.id)
            transfer.segments.append(Segment(transfer, None, index, NO_PAGES, target, start))
    return transfer, ""


def _comes_to_host(known: Known) -> bool:
    """Whether the known path is on host, or will be when a backup has ended. If host copies are
    contiguous, what is above the last node is on host as well."""
    return all(
        node.pages[HOST][BACKBONE] is not None
        or any(
            segment.component == BACKBONE and segment.transfer.kind is BACKUP
            for segment in node.segments
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
            nodes = [node for node in known.path if min(node.end_page, known.depth) > low]
        else:
            nodes = _ending_at(known, end)
        locked.append(known.path if index == BACKBONE else nodes)
    return locked


def _free_host_pages(state: State, locked: list[list[Node]]) -> list[int]:
    """By component, the host pages that can be had when these nodes are locked."""
    free_pages = []
    for index, nodes in enumerate(locked):
        free = state.pools[HOST][index].available - kept_free(state, index)
        for node in nodes:
            page = node.pages[HOST][index]
            if page is not None and not node.locks[HOST][index]:
                free -= len(page)
        free_pages.append(max(0, free))
    return free_pages


def _shortened(missing: list[list[Run]], free_pages: list[int], end: int) -> int:
    """The deepest page up to which there is room for everything that is missing."""
    for runs, left in zip(missing, free_pages, strict=True):
        for start, stop in runs:
            if stop - start > left:
                end = min(end, start + left)
                break
            left -= stop - start
    return end


def _fetch_action(state: State, transfer: Transfer) -> Fetch:
    first, names = transfer.first_page, state.config.components
    pieces = tuple(
        Piece(
            names[segment.component],
            segment.first_page,
            transfer.digests[
                segment.first_page - first : segment.first_page - first + len(segment.target)
            ],
            segment.target,
        )
        for segment in transfer.segments
    )
    return Fetch(transfer.id, transfer.request, first, pieces, len(transfer.digests))


def fetch_done(state: State, event: FetchDone) -> None:
    transfer = transfer_of(state, event.transfer, FETCH)
    promised = len(transfer.digests)
    check_pages(transfer, event.pages, promised)
    waiters = release_waiters(state, transfer)
    published = _land(state, transfer, event.pages, waiters[0] if waiters else None)
    if event.pages < promised and not transfer.abandoned and tells(state, transfer):
        distrust(state, transfer.digests[event.pages])
    close_storage_transfer(state, transfer)
    if waiters:
        report(state, waiters[0], transfer, published, "short" if event.pages < promised else "")
        try_again(state, waiters[1:])
    report_detached(state)


def _land(state: State, transfer: Transfer, pages: int, owner: Request | None) -> int:
    """Attach what has arrived and free the rest. Returns how many pages after the first one are in
    the tree with it; 0 if the cache was flushed since."""
    first, end = transfer.first_page, transfer.first_page + len(transfer.digests)
    upto = first + pages if state.every_end_is_live or first + pages == end else first
    published = 0
    if transfer.receipt is not None:  # the cache was not flushed since
        release(state, transfer.receipt)
        if upto > first and _can_end(state, transfer, upto):
            priority = owner.priority if owner is not None else 0
            published = _publish(state, transfer, upto, priority)
    for segment in transfer.segments:
        pool = state.pools[HOST][segment.component]
        pool.give_back(segment.target[pool.state[segment.target] == PageState.RESERVED])
    transfer.segments.clear()
    return published


def _publish(state: State, transfer: Transfer, upto: int, priority: int) -> int:
    """Attach what was fetched up to page `upto`. Returns how many pages after the first one could
    be attached, or were there; 0 if this makes no new boundary."""
    first, key, cuts = transfer.first_page, key_of(transfer), _cuts(state, transfer, upto)
    path, arrived = match(state, key, upto), _by_depth(state, transfer, upto)
    for at in cuts:
        cut(state, path, at)
    reached = upto
    for node in path:
        if node.end_page > first and not _adopt(state, transfer, node, arrived):
            reached = start_of(node, state.stride)
            break
    else:
        known = path[-1].end_page if path else 0
        if known < upto and not _grow(state, transfer, path, arrived, (*cuts, upto), priority):
            reached = known
    if reached < upto:
        return max(0, reached - first) if state.every_end_is_live else 0
    if not state.every_end_is_live:
        limit_states(state, path)
    return upto - first


def _cuts(state: State, transfer: Transfer, upto: int) -> list[int]:
    """Page depths at which nodes must end besides `upto`, ascending."""
    starts = [upto - state.components[index].window_pages for index in state.bounded]
    return sorted({at for at in (transfer.first_page, *starts) if 0 < at < upto})


def _by_depth(state: State, transfer: Transfer, upto: int) -> list[Pages]:
    """By component, the host page that was fetched for each depth after the first page, up to page
    `upto`; -1 where none was. A state is at the depth of the page that ends where it belongs."""
    tables = []
    for index in range(len(state.components)):
        table = np.full(upto - transfer.first_page, -1, dtype=np.int64)
        for segment in transfer.segments:
            if segment.component == index:
                start = segment.first_page - transfer.first_page
                table[start : start + len(segment.target)] = segment.target[
                    : max(0, len(table) - start)
                ]
        tables.append(table)
    return tables


def _pages_for(
    state: State, transfer: Transfer, arrived: list[Pages], index: int, node: Node
) -> Pages | None:
    """What was fetched of a component for a node; None unless it is there for all positions."""
    positional = state.components[index].positional
    start = start_of(node, state.stride) if positional else node.end_page - 1
    if start < transfer.first_page:
        raise CoreBug(f"{node} was not cut at page {transfer.first_page}")
    pages = arrived[index][start - transfer.first_page : node.end_page - transfer.first_page]
    return pages if int(pages.min()) >= 0 else None


def _adopt(state: State, transfer: Transfer, node: Node, arrived: list[Pages]) -> bool:
    """Give a node what it lacks on host. Returns False if it cannot take it; then nothing behind it
    is attached either."""
    for index in range(len(state.components)):
        if node.pages[HOST][index] is not None:
            continue
        pages = _pages_for(state, transfer, arrived, index, node)
        if pages is None:
            if index == BACKBONE and state.writes.contiguous:
                return False
        elif not may_publish(state, transfer, node, index):
            return False
        else:
            _attach(state, transfer, node, index, pages)
    return True


def _grow(
    state: State,
    transfer: Transfer,
    path: list[Node],
    arrived: list[Pages],
    ends: Sequence[int],
    priority: int,
) -> bool:
    """Append new nodes to the path up to the last of these ends. Returns False if the tree cannot
    take them: pages before them are missing, on any tier or on host where the policy asks for it.
    """
    known, first, key = path[-1].end_page if path else 0, transfer.first_page, key_of(transfer)
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
            raise CoreBug(f"{parent} has a child already where {transfer} adds one")
        node = new_child(state, parent, rows, label)
        node.last_use = [state.tick] * len(state.components)
        node.priority = priority
        for index in range(len(state.components)):
            pages = _pages_for(state, transfer, arrived, index, node)
            if pages is not None:
                _attach(state, transfer, node, index, pages)
        path.append(node)
        known = end
    return True


def _attach(state: State, transfer: Transfer, node: Node, index: int, pages: Pages) -> None:
    attach(state, node, HOST, index, pages)
    if index == BACKBONE:
        lock_for_storage(state, node)
    if state.attached and tells(state, transfer):
        believe(state, node, index)


def _can_end(state: State, transfer: Transfer, upto: int) -> bool:
    """Whether page `upto` will be a live boundary with what was fetched."""
    if state.every_end_is_live:
        return True
    known = know(state, key_of(transfer), upto)
    arrived = _by_depth(state, transfer, upto)
    return all(
        start >= transfer.first_page
        and bool(
            (arrived[index][start - transfer.first_page : stop - transfer.first_page] >= 0).all()
        )
        for index, runs in enumerate(missing_runs(state, known, upto))
        for start, stop in runs
    )
