"""Prefetches: what is read from storage for a request that waits.

    arrival -> lookup: what does storage have? -> fetch: into host pages -> the nodes get the pages

A request whose next page is on its way for another one waits for that. Of the requests that wait
for a flight, the one that arrived first owns it: it hears how the flight ended, and the others
begin anew. When nobody waits any more, the flight is abandoned: it goes on, for nobody.
"""

from __future__ import annotations

from hicache.core.actions import Abandoned, Lookup, Prefetched, PrefetchEnd

from .cache import Cache
from .kinds import FOREVER, FULL, WAITS
from .matching import reach
from .records import Request, StorageFlight
from .refusals import refuse


def begin(cache: Cache, request: Request, again: bool = False) -> None:
    """Looks up what the request lacks behind its best boundary, or says why not. again: it has
    waited for another request's flight, and must hear that it waits no longer."""
    _, first, alone = reach(cache, request)
    lacks = request.key.page_digests()[first : request.match_pages]
    if not lacks:
        if again:
            cache.say(Prefetched(request.number, first, 0, 0, 0, ""))
        return
    asked, reason = len(lacks), _obstacle(cache, len(lacks))
    if not reason:
        request.prefetch = _on_its_way(cache, first, lacks[0])
        if request.prefetch is not None:
            return
        asked = next((at for at, one in enumerate(lacks) if one in cache.distrusted), asked)
        within = min(asked, _budget_left(cache))
        if not is_enough(cache, within):
            reason = "budget" if is_enough(cache, asked) else "miss"
        asked = within
    if reason:
        cache.say(Prefetched(request.number, first, len(lacks), 0, 0, reason))
        return
    flight = cache.begin_storage("lookup")
    flight.key, flight.first, flight.asked = request.key.first(first + asked), first, asked
    request.prefetch = flight
    known = min(asked, max(0, alone[FULL] - first))
    trailing = tuple(0 if one.window == FOREVER else one.window for one in cache.kinds)
    digests = tuple(lacks[:asked])
    cache.say(Lookup(flight.number, request.number, first, digests, known, trailing))


def is_enough(cache: Cache, pages: int) -> bool:
    """Whether a prefetch of so many pages is worth it."""
    return pages * cache.config.page_size >= max(1, cache.config.prefetch_threshold_tokens)


def _obstacle(cache: Cache, pages: int) -> PrefetchEnd:
    """Why a prefetch of so many pages is not even tried; "" if it is."""
    if not all(cache.config.host_pages):
        return "no_host_pages"  # a boundary requires something of every kind
    if not is_enough(cache, pages):
        return "too_short"
    return "flushed" if cache.in_flight("delete") else ""


def _on_its_way(cache: Cache, depth: int, digest: bytes) -> StorageFlight | None:
    """The oldest lookup or fetch that somebody waits for and that goes over this page."""
    for flight in cache.in_flight("lookup", "fetch"):
        if flight.abandoned or not flight.first <= depth < flight.first + flight.pages:
            continue
        if flight.key.page_digests()[depth] == digest:
            return flight
    return None


def _budget_left(cache: Cache) -> int:
    """How many pages more may be looked up and fetched at a time."""
    size = cache.config.page_size
    budget = cache.config.prefetch_budget_tokens or cache.config.host_pages[FULL] * size
    used = sum(flight.pages * size for flight in cache.in_flight("lookup", "fetch"))
    return max(0, budget - used) // size


# -- who waits


def waiters(cache: Cache, flight: StorageFlight) -> list[Request]:
    """In the order in which they arrived; the first owns the flight."""
    return [request for request in cache.requests.values() if request.prefetch is flight]


def may_start(cache: Cache, request: Request) -> bool:
    """The request is to be admitted. By policy it waits for its prefetch, or goes without it."""
    flight = request.prefetch
    if flight is not None and WAITS[cache.config.prefetch_policy]:
        refuse(cache, request.number, "fetching", 0, 0, after=flight.number)
        return False
    stop_waiting(cache, request)
    return True


def stop_waiting(cache: Cache, request: Request) -> None:
    """The request waits for its prefetch no longer, if it does."""
    if request.prefetch is not None:
        say_ended(cache, request, request.prefetch, 0, "late")
        let_go(cache, request)


def let_go(cache: Cache, request: Request) -> None:
    """The request has nothing to do with its prefetch any more, and nobody asks how it ended."""
    flight, request.prefetch = request.prefetch, None
    if flight is not None and not waiters(cache, flight):
        abandon(cache, flight)


def abandon(cache: Cache, flight: StorageFlight) -> None:
    if not flight.abandoned:
        flight.abandoned = True
        cache.say(Abandoned(flight.number))


def end(cache: Cache, flight: StorageFlight, fetched: int, reason: PrefetchEnd) -> None:
    """A lookup or fetch ended. Its owner hears it, and the other requests begin anew: the tree may
    have for them what they lacked."""
    waiting = waiters(cache, flight)
    for request in waiting:
        request.prefetch = None
    for request in waiting[:1]:
        say_ended(cache, request, flight, fetched, reason)
    for request in waiting[1:]:
        begin(cache, request, again=True)


def say_ended(
    cache: Cache, request: Request, flight: StorageFlight, fetched: int, reason: PrefetchEnd
) -> None:
    first, asked, found = flight.first, flight.asked, flight.found
    cache.say(Prefetched(request.number, first, asked, found, fetched, reason))
