"""What a refusal says, so that whoever is refused knows what to wait for.

too_large      the request can never fit
arriving       another request is loading this prefix; ask again after that load's reply
writing_back   replies under way make enough pages available; ask again after this one
no_pages       they do not: a request has to end, or to be retracted
"""

from __future__ import annotations

from hicache.core.actions import NO_REQUEST, RefusalReason, Refused

from .cache import Cache
from .kinds import FULL
from .matching import reach, walk
from .records import DEVICE, HOST, Flight, Request


def refuse(
    cache: Cache,
    request: int,
    reason: RefusalReason,
    needed: int,
    available: int,
    kind: int = FULL,
    preempt: int = NO_REQUEST,
    after: int = 0,
) -> None:
    name = cache.kinds[kind].name
    cache.say(Refused(request, reason, needed, available, preempt, name, after))


def is_too_large(cache: Cache, request: Request, pages: int) -> bool:
    """Pages that pins hold can be used by nobody who does not reuse them."""
    most = cache.capacity(DEVICE, FULL) - pinned_beside(cache, request)
    if pages > most:
        refuse(cache, request.number, "too_large", pages, most)
    return pages > most


def pinned_beside(cache: Cache, request: Request) -> int:
    """Device pages of full attention that pins hold, and that the request does not share: once it
    runs, those that are not in its hold; before, those behind the depth that it could reuse now
    without a load."""
    held: set[int] = set().union(*(pin.hold for pin in cache.pins.values()))
    held &= cache.cached(DEVICE, FULL)
    if request in cache.running:
        return len(held - request.hold)
    depth, _, _ = reach(cache, request)
    path, partly, _ = walk(cache, request.key, request.match_pages)
    for node in [*path, partly] if partly else path:
        held.difference_update((node.copies[DEVICE][FULL] or [])[: max(0, depth - node.start)])
    return len(held)


def refuse_room(
    cache: Cache, request: Request, kind: int, needed: int, preempt: bool = False
) -> None:
    """Refuses for lack of pages. With `preempt` it names the request that was admitted last, unless
    a reply will do."""
    after = _reply_that_frees(cache, kind, needed)
    victim = cache.running[-1].number if preempt and not after else NO_REQUEST
    room = cache.available(DEVICE, kind)
    reason: RefusalReason = "writing_back" if after else "no_pages"
    refuse(cache, request.number, reason, needed, room, kind, victim, after)


def _reply_that_frees(cache: Cache, kind: int, needed: int) -> int:
    """The flight after whose reply, with those before it, there are enough pages; 0 if none.

    Where enough are available already, eviction waits for a copy to host: the one that frees enough
    pages with those before it, else the last that frees any, else the first that holds pages.
    """
    coming = _coming(cache, kind)
    room = cache.available(DEVICE, kind)
    if room < needed:
        for flight, pages in coming:
            room += pages
            if pages and room >= needed:
                return flight.number
        return 0
    room, last = cache.free(DEVICE, kind), 0
    for flight in cache.flights.values():
        if flight.frees.get(kind) and room < needed:
            room, last = room + flight.frees[kind], flight.number
    copies = (flight.number for flight, pages in coming if pages and flight.to == HOST)
    return last or next(copies, 0)


def _coming(cache: Cache, kind: int) -> list[tuple[Flight, int]]:
    """The flights in the order in which they began, and how many device pages the reply of each
    makes available:

    - pages that were given back while in use; they count for the last flight that uses them,
    - the targets of a load that nobody waits for any more,
    - cached pages that only flights hold; they count for the last of these.
    """
    flights = list(cache.flights.values())
    pages = [0] * len(flights)
    for page in cache.lent(DEVICE, kind) - cache.had(DEVICE, kind):
        users = [at for at, flight in enumerate(flights) if page in _used(cache, flight, kind)]
        pages[users[-1]] += 1
    for at, flight in enumerate(flights):
        if flight.to == DEVICE and flight.request is None:
            pages[at] += sum(move.kind == kind for move in flight.moves)
    holds = [one.hold for one in cache.running] + [one.hold for one in cache.pins.values()]
    for page in cache.cached(DEVICE, kind) - set().union(*holds):
        holders = [at for at, flight in enumerate(flights) if page in flight.hold]
        if holders:
            pages[holders[-1]] += 1
    return list(zip(flights, pages, strict=True))


def _used(cache: Cache, flight: Flight, kind: int) -> set[int]:
    """The device pages that a flight reads or writes, and that nodes or requests may have had."""
    sources = {move.source for move in flight.moves if flight.to == HOST and move.kind == kind}
    return sources | flight.lent.get(kind, set())
