"""Fetches: a lookup has found pages, so they are read from storage into host pages.

    found -> what the boundary requires and the tree lacks -> hold -> make room -> fetch

This is the first moment at which a prefetch evicts anything: one that finds nothing costs nothing.
"""

from hicache.core.actions import Fetch, Piece, PrefetchEnd
from hicache.core.types import Key

from . import copies, prefetching
from .cache import Cache
from .eviction import kept_for_exchanges, make_room
from .kinds import FULL
from .matching import known_of
from .records import HOST, Hold, Part, StorageTransfer, as_pages


def storage_has(cache: Cache, lookup: StorageTransfer, pages: int) -> None:
    """The reply of a lookup: so many pages are in storage. Fetches them, or ends the prefetch."""
    lookup.found_pages = pages
    reason = None if lookup.abandoned else _fetch_or_say_why_not(cache, lookup)
    if reason is not None:
        prefetching.is_over(cache, lookup, 0, reason)


def _fetch_or_say_why_not(cache: Cache, lookup: StorageTransfer) -> PrefetchEnd | None:
    if not prefetching.is_worth_it(cache, lookup.found_pages):
        return "too_short" if lookup.found_pages else "miss"
    kinds, first, end = range(len(cache.kinds)), lookup.first, lookup.first + lookup.found_pages
    hold = _needed_on_host(cache, lookup.key, end)
    free = [cache.available(HOST, kind, hold) - kept_for_exchanges(cache, kind) for kind in kinds]
    lacks = [
        sorted(needed_at(cache, end, kind) - depths_in_tree(cache, lookup.key, end, kind))
        for kind in kinds
    ]
    if any(depth < first for depths in lacks for depth in depths):
        return "miss"  # the tree had these when the lookup began
    if not any(lacks):
        return ""
    if len(kinds) == 1:  # a shorter prefix is of use too
        lacks = [lacks[FULL][: max(0, free[FULL])]]
        end = max(lacks[FULL], default=first - 1) + 1
    fits = all(len(depths) <= max(0, most) for depths, most in zip(lacks, free, strict=True))
    if not (fits and _continues_on_host(cache, lookup.key, first + lookup.found_pages)):
        return "no_host_pages"
    if not prefetching.is_worth_it(cache, end - first):
        return "no_host_pages"
    _fetch(cache, lookup, end, lacks, hold)
    return None


def depths_in_tree(cache: Cache, key: Key, end: int, kind: int) -> set[int]:
    """The pages of this kind, up to a depth of the key, that the tree has on either tier."""
    known = known_of(cache, key, end)
    indices = (cache.positions(node, kind) for node in known.nodes if node.anywhere(kind))
    return {depth for depths in indices for depth in depths if depth < known.depth}


def needed_at(cache: Cache, end: int, kind: int) -> set[int]:
    """The pages of this kind that a boundary requires."""
    return set(range(max(0, end - cache.kinds[kind].window), end))


def _continues_on_host(cache: Cache, key: Key, end: int) -> bool:
    """Whether what the tree has of the prompt is on host, or on its way there, as far as the write
    policy wants a host copy above another."""
    last = known_of(cache, key, end).nodes[-1:]
    missing = [node for node in last if not node.has(HOST, FULL)]
    gap = any(FULL in copies.lacking_on_host(cache, node) for node in missing)
    return cache.writes.gaps or not gap


def _needed_on_host(cache: Cache, key: Key, end: int) -> Hold:
    """The host copies that the boundary will require, and full attention of the whole prompt."""
    known, hold = known_of(cache, key, end), set[int]()
    for kind in range(len(cache.kinds)):
        needed = needed_at(cache, end, kind) & set(range(known.depth))
        for node in known.nodes:
            if not needed.isdisjoint(cache.positions(node, kind)):
                copies.hold(hold, node, HOST, kind)
    return hold


def _fetch(
    cache: Cache, lookup: StorageTransfer, end: int, lacks: list[list[int]], hold: Hold
) -> None:
    """The fetch takes the place of the lookup. Pages are in runs of consecutive ones."""
    waiting = prefetching.waiters(cache, lookup)
    transfer = cache.begin_storage("fetch")
    transfer.key, transfer.first, transfer.hold = lookup.key.first(end), lookup.first, hold
    transfer.asked_pages, transfer.found_pages = lookup.asked_pages, lookup.found_pages
    for request in waiting:
        request.prefetch = transfer
    for kind, depths in enumerate(lacks):
        if depths and not make_room(cache, HOST, kind, len(depths)):
            raise AssertionError(f"host has no room for {len(depths)} pages that were to fit")
    digests = lookup.key.page_digests()
    for kind, depths in enumerate(lacks):
        pages = zip(depths, cache.new_pages(len(depths)), strict=True)
        transfer.parts += [Part(kind, depth, digests[depth], page) for depth, page in pages]
    pieces = in_runs(cache, transfer)
    cache.say(Fetch(transfer.number, waiting[0].number, transfer.first, pieces, transfer.pages))


def in_runs(cache: Cache, transfer: StorageTransfer) -> tuple[Piece, ...]:
    """The parts in the form that an action carries: runs of consecutive pages of one kind."""
    runs: list[list[Part]] = []
    for part in transfer.parts:
        if runs and runs[-1][-1][:2] == (part.kind, part.depth - 1):
            runs[-1].append(part)
        else:
            runs.append([part])
    pieces = []
    for run in runs:
        digests, pages = tuple(part.digest for part in run), [part.page for part in run]
        name = cache.kinds[run[0].kind].name
        pieces.append(Piece(name, run[0].depth, digests, as_pages(pages)))
    return tuple(pieces)
