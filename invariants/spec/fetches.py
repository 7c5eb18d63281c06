"""Fetches: a lookup has found pages, so they are read from storage into host pages.

    found -> what the boundary requires and the tree lacks -> hold -> make room -> fetch

This is the first moment at which a prefetch evicts anything: one that finds nothing costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from hicache.core.actions import Fetch, Piece, PrefetchEnd
from hicache.core.types import Key

from . import copies, prefetching
from .cache import Cache
from .eviction import kept_free, make_host_room
from .kinds import FULL
from .matching import walk
from .records import HOST, Hold, Node, Part, StorageFlight, as_pages


class Known(NamedTuple):
    """A node that the tree knows of a prompt, and up to which depth it does."""

    node: Node
    upto: int


def after_lookup(cache: Cache, lookup: StorageFlight, pages: int) -> None:
    """The reply of a lookup: so many pages are in storage. Fetches them, or ends the prefetch."""
    if lookup.abandoned:
        return
    lookup.found = pages
    reason = _begin(cache, lookup)
    if reason is not None:
        prefetching.end(cache, lookup, 0, reason)


def _begin(cache: Cache, lookup: StorageFlight) -> PrefetchEnd | None:
    """Begins the fetch, or returns why it does not."""
    if not prefetching.is_enough(cache, lookup.found):
        return "too_short" if lookup.found else "miss"
    end = lookup.first + lookup.found
    lacks = [_lacking(cache, lookup.key, end, kind) for kind in range(len(cache.kinds))]
    if any(depths and depths[0] < lookup.first for depths in lacks):
        return "miss"  # the tree had these when the lookup began
    if not any(lacks):
        return ""
    if not _can_attach(cache, lookup.key, end):
        return "no_host_pages"
    hold = _to_hold(cache, lookup.key, end)
    rooms = [
        cache.available(HOST, kind, without=hold) - kept_free(cache, kind)
        for kind in range(len(cache.kinds))
    ]
    if len(cache.kinds) == 1:  # a shorter prefix is of use too
        lacks[FULL] = lacks[FULL][: max(0, rooms[FULL])]
        end = lacks[FULL][-1] + 1 if lacks[FULL] else lookup.first
    if any(len(depths) > room for depths, room in zip(lacks, rooms, strict=True)):
        return "no_host_pages"
    if not prefetching.is_enough(cache, end - lookup.first):
        return "no_host_pages"
    _fetch(cache, lookup, end, lacks, hold)
    return None


def depths_in_tree(cache: Cache, key: Key, end: int, kind: int) -> set[int]:
    """The pages of this kind, up to a depth of the key, that the tree has on either tier."""
    found: set[int] = set()
    for node, upto in _known(cache, key, end):
        if node.anywhere(kind):
            found.update(depth for depth in cache.positions(node, kind) if depth < upto)
    return found


def depths_required(cache: Cache, end: int, kind: int) -> range:
    """The pages of this kind that a boundary requires."""
    return range(max(0, end - cache.kinds[kind].window), end)


def _lacking(cache: Cache, key: Key, end: int, kind: int) -> list[int]:
    have = depths_in_tree(cache, key, end, kind)
    return [depth for depth in depths_required(cache, end, kind) if depth not in have]


def _known(cache: Cache, key: Key, end: int) -> list[Known]:
    path, partly, pages = walk(cache, key, end)
    whole = [Known(node, node.end) for node in path]
    return [*whole, Known(partly, partly.start + pages)] if partly else whole


def _can_attach(cache: Cache, key: Key, end: int) -> bool:
    """Whether what the tree has of the prompt is on host, or on its way there, as far as the write
    policy wants a host copy above another."""
    known = _known(cache, key, end)
    if not known or cache.writes.before_eviction:
        return True
    last = known[-1].node
    return last.has(HOST, FULL) or FULL not in copies.missing_on_host(cache, last)


def _to_hold(cache: Cache, key: Key, end: int) -> Hold:
    """The host copies that the boundary will require, and full attention of the whole prompt."""
    hold: Hold = set()
    for node, upto in _known(cache, key, end):
        for kind in range(len(cache.kinds)):
            has = (depth for depth in cache.positions(node, kind) if depth < upto)
            if any(depth in depths_required(cache, end, kind) for depth in has):
                copies.hold(hold, node, HOST, kind)
    return hold


def _fetch(
    cache: Cache, lookup: StorageFlight, end: int, lacks: list[list[int]], hold: Hold
) -> None:
    waiting = prefetching.waiters(cache, lookup)
    flight = cache.begin_storage("fetch")
    flight.key, flight.first, flight.hold = lookup.key.first(end), lookup.first, hold
    flight.asked, flight.found = lookup.asked, lookup.found
    for request in waiting:
        request.prefetch = flight
    for kind, depths in enumerate(lacks):
        if depths and not make_host_room(cache, kind, len(depths)):
            raise AssertionError(f"host has no room for {len(depths)} pages that were to fit")
    digests = lookup.key.page_digests()
    for kind, depths in enumerate(lacks):
        pages = zip(depths, cache.take(len(depths)), strict=True)
        flight.parts += [Part(kind, depth, digests[depth], page) for depth, page in pages]
    pieces = pieces_of(cache, flight)
    cache.say(Fetch(flight.number, waiting[0].number, flight.first, pieces, flight.pages))


def pieces_of(cache: Cache, flight: StorageFlight) -> tuple[Piece, ...]:
    """The parts in the form that an action carries: runs of consecutive pages of one kind."""
    runs: list[list[Part]] = []
    for part in flight.parts:
        last = runs[-1][-1] if runs else None
        if last is not None and (last.kind, last.depth + 1) == (part.kind, part.depth):
            runs[-1].append(part)
        else:
            runs.append([part])
    return tuple(
        Piece(
            cache.kinds[run[0].kind].name,
            run[0].depth,
            tuple(part.digest for part in run),
            as_pages([part.page for part in run]),
        )
        for run in runs
    )
