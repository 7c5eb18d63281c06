"""An admitted request goes on: the next chunk, more pages in decode, and what it no longer needs.

window    nothing is read any more before  min(computed, boundary still to be made) - window
state     a request has three slots: one to work on, and two for checkpoints in turn
"""

from __future__ import annotations

from hicache.core.actions import Granted, Prefill, StateSlots
from hicache.core.types import Pages

from . import copies
from .cache import Cache
from .eviction import make_device_room
from .kinds import FULL
from .matching import split
from .records import DEVICE, Flight, Request, as_pages
from .refusals import is_too_large, refuse_room


def continue_prefill(cache: Cache, request: Request, chunk: int) -> None:
    """The next chunk, as far as there are pages of the windows."""
    start = request.computed
    wanted = min(start + chunk, request.length)
    short = any(_reachable(cache, request, kind, wanted) < wanted for kind in cache.windows)
    release_behind(cache, request, start, exactly=short)
    end = wanted
    for kind in cache.windows:
        end = _reachable(cache, request, kind, end)
        if end <= start:
            refuse_room(cache, request, kind, 1, preempt=True)
            return
    count = max(0, cache.pages_of(end) - request.filled)
    for kind in cache.windows:
        if not make_device_room(cache, kind, count):
            refuse_room(cache, request, kind, count, preempt=True)
            return
    fill_windows(cache, request, cache.pages_of(end))
    begin_pass(cache, request, end)


def _reachable(cache: Cache, request: Request, kind: int, end: int) -> int:
    """The token up to which there are pages of a window."""
    room = cache.available(DEVICE, kind)
    return min(end, (request.filled + room) * cache.config.page_size)


def fill_windows(cache: Cache, request: Request, upto: int) -> None:
    count = max(0, upto - request.filled)
    for kind in cache.windows:
        request.tables[kind][request.filled : request.filled + count] = cache.take(count)
    request.filled += count


def begin_pass(cache: Cache, request: Request, end: int) -> None:
    """The pass may use the request's own pages, and the targets of its load, until its reply."""
    flight = copies.begin(cache, None, request)
    flight.end_token = end
    flight.checkpoints = _checkpoints(cache, request, end)
    moves = request.load.moves if request.load is not None else []
    for kind in range(len(cache.kinds)):
        loaded = {move.target for move in moves if move.kind == kind}
        flight.lent[kind] = loaded.union(cache.own(request, kind))
    request.prefill = flight
    cache.say(
        Prefill(
            flight.number,
            request.number,
            request.computed,
            end,
            tables_of(cache, request),
            (request.load.number,) if request.load is not None else (),
            end == request.length,
            slots_of(cache, request, flight),
        )
    )
    request.sources = [None] * len(cache.kinds)


def grow(cache: Cache, request: Request, length: int, computed: int) -> None:
    """A decoding request needs pages for `length` tokens."""
    pages, had = cache.pages_of(length), len(request.tables[FULL])
    if is_too_large(cache, request, pages):
        return
    room_tokens = had * cache.config.page_size
    computed = max(computed, request.computed) if computed else 0
    if computed:
        release_behind(cache, request, computed)
    count = pages - had
    if count > 0:
        short = _first_short(cache, count)
        if short is not None and computed:
            release_behind(cache, request, computed, exactly=True)
            short = _first_short(cache, count)
        for kind in (FULL, *cache.windows):
            if short is None and not make_device_room(cache, kind, count):
                short = kind
        if short is not None:
            refuse_room(cache, request, short, count, preempt=True)
            return
        for kind in (FULL, *cache.windows):
            request.tables[kind] += cache.take(count)
        request.filled = pages
    refill_slots(cache, request, room_tokens)
    cache.say(Granted(request.number, tables_of(cache, request), slots_of(cache, request)))


def _first_short(cache: Cache, count: int) -> int | None:
    kinds = (FULL, *cache.windows)
    return next((kind for kind in kinds if count > cache.available(DEVICE, kind)), None)


def release_behind(cache: Cache, request: Request, computed: int, exactly: bool = False) -> None:
    """Gives back the pages of windows that no token after the first `computed` reads, and lets go
    of nodes that lie before the window as a whole. exactly: cuts the node that lies before it in
    part.

    A request that can still make a boundary keeps what this requires.
    """
    size = cache.config.page_size
    low = computed // size
    boundary = computed // cache.interval * cache.interval // size
    every_slot = all(None not in request.tables[kind] for kind in cache.stateful)
    if boundary > request.shared and every_slot:
        low = boundary
    for kind in cache.windows:
        first = max(low - cache.kinds[kind].window, request.cleared[kind])
        if first <= 0:
            continue
        if exactly:
            for node in cache.nodes():
                if node.start < first < node.end and node.is_held(request.hold, DEVICE, kind):
                    split(cache, node, first - node.start)
        let_go_above(cache, request, kind, first)
        request.cleared[kind] = first
        request.tables[kind][:first] = [None] * first


def let_go_above(cache: Cache, request: Request, kind: int, depth: int) -> None:
    """The request holds a kind no longer on device at nodes that end at or before this depth."""
    for node in cache.nodes():
        if node.end <= depth:
            request.hold.difference_update(node.copies[DEVICE][kind] or ())


# -- boundaries and the states that they need


def boundaries_of_pass(cache: Cache, request: Request, start: int, end: int) -> list[int]:
    """The page depths at which a pass makes boundaries: the deepest that every kind allows, and
    where other prompts are likely to branch off."""
    step, size = cache.interval, cache.config.page_size
    deepest = min(end, request.key.pages * size) // step * step
    depths = {deepest}
    if cache.windows or cache.stateful:
        depths.add(request.branch * size // step * step)
    return sorted(depth // size for depth in depths if start < depth <= deepest)


def boundaries_at_end(cache: Cache, request: Request, pages: int, tokens: int) -> list[int]:
    """The page depths at which an ending request can make boundaries: where it has every state;
    without states, the end of what it committed."""
    size = cache.config.page_size
    if not cache.stateful:
        return [pages] if pages else []
    common = set.intersection(*(set(request.states[kind]) for kind in cache.stateful))
    limit = min(tokens, pages * size)
    return sorted(depth // size for depth in common if 0 < depth <= limit)


def _checkpoints(cache: Cache, request: Request, end: int) -> list[tuple[int, int, int]]:
    """(kind, tokens, slot): the states that a pass stores. The deepest goes where decode would put
    it, the one before it into the other slot; a slot without a page stores nothing."""
    found = []
    depths = boundaries_of_pass(cache, request, request.computed, end)
    size = cache.config.page_size
    for kind in cache.stateful if depths else ():
        last = slot_at(cache, kind, depths[-1] * size)
        for pages, slot in zip(reversed(depths), (last, 1 - last), strict=False):
            if request.tables[kind][1 + slot] is not None:
                found.append((kind, pages * size, slot))
    return found


def slot_at(cache: Cache, kind: int, tokens: int) -> int:
    return tokens // cache.kinds[kind].interval % 2


def note_decoded(cache: Cache, request: Request, tokens: int) -> None:
    """A request ends after `tokens`. Of the states stored in decode only the last counts, since a
    step that ran ahead may have overwritten the other; and only if its slot was there in time."""
    if request.computed < request.length:
        return
    for kind in cache.stateful:
        step = cache.kinds[kind].interval
        depth, slot = tokens // step * step, slot_at(cache, kind, tokens)
        known = request.states[kind][slot]
        if depth > request.length:
            there = request.tables[kind][1 + slot] is not None and depth > request.refilled
            known = depth if there else 0
        request.states[kind] = [0, 0]
        request.states[kind][slot] = known


def refill_slots(cache: Cache, request: Request, since: int) -> None:
    """The request gets free pages for the slots that it lacks. since: tokens that it may have
    computed; the new slots do not have the states up to there."""
    for kind in cache.stateful:
        for slot, page in enumerate(request.tables[kind]):
            if page is None and cache.free(DEVICE, kind):
                (request.tables[kind][slot],) = cache.take(1)
                request.refilled = max(request.refilled, since)


# -- what outcomes say of a request's pages


def tables_of(cache: Cache, request: Request) -> tuple[Pages, ...]:
    kinds = (FULL, *cache.windows)
    return tuple(as_pages(request.tables[kind]) for kind in kinds)


def slots_of(
    cache: Cache, request: Request, flight: Flight | None = None
) -> tuple[StateSlots, ...]:
    """The slots for states; with a flight, also what its pass has to copy."""
    found = []
    for kind in cache.stateful:
        working, *slots = [-1 if page is None else page for page in request.tables[kind]]
        source = request.sources[kind] if flight is not None else None
        stored = flight.checkpoints if flight is not None else []
        checkpoints = sorted((tokens, slots[slot]) for one, tokens, slot in stored if one == kind)
        found.append(
            StateSlots(
                cache.kinds[kind].name,
                -1 if source is None else source,
                working,
                (slots[0], slots[1]),
                cache.kinds[kind].interval,
                tuple(checkpoints),
            )
        )
    return tuple(found)
