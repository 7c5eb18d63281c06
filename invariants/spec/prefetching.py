"""Prefetches: what is read from storage for a request that waits.

    arrival -> lookup: what does storage have? -> fetch: into host pages -> the nodes get the pages

No page is looked up for two at a time: a request whose next page is on its way for another one
waits for that. Of the requests that wait for a transfer, the one that arrived first owns it: it
hears how the transfer ended, and the others begin anew. When nobody waits any more, the transfer is
abandoned: it goes on, for nobody.
"""

from itertools import takewhile

from hicache.core.actions import Abandoned, Lookup, Prefetched, PrefetchEnd

from .cache import Cache
from .kinds import FOREVER, FULL
from .matching import known_of, reach
from .records import Request, StorageTransfer
from .refusals import say_refused


def look_for_rest(cache: Cache, request: Request, again: bool = False) -> None:
    """Looks up what the request lacks behind its best boundary, or says why not. again: it has
    waited for another request's transfer, and must hear that it waits no longer."""
    result = reach(cache, known_of(cache, request.key, request.match_pages))
    first, lacks = result.best, request.key.page_digests()[result.best : request.match_pages]
    other = _under_way(cache, first, lacks)
    trusted = len(list(takewhile(lambda data: data not in cache.distrusted, lacks)))
    requested = min(trusted, _budget_left(cache))
    obstacles: dict[PrefetchEnd, bool] = {
        "no_host_pages": not all(cache.config.host_pages),  # a boundary requires all kinds
        "too_short": not is_worth_it(cache, len(lacks)),
        "flushed": bool(cache.in_flight("delete")),
        "miss": other is None and not is_worth_it(cache, trusted),
        "budget": other is None and not is_worth_it(cache, requested),
    }
    met: list[PrefetchEnd] = [text for text, is_met in obstacles.items() if is_met and lacks]
    reason = met[0] if met else ""
    if reason or (again and not lacks):
        cache.say(Prefetched(request.number, first, len(lacks), 0, 0, reason))
    elif other is not None:
        request.prefetch = other
    elif lacks:
        _look_up(cache, request, first, lacks[:requested], result.alone[FULL])


def _look_up(cache: Cache, request: Request, first: int, digests: list[bytes], known: int) -> None:
    """known: page depth up to which the tree has full attention."""
    transfer = cache.begin_storage("lookup")
    transfer.key = request.key.first(first + len(digests))
    transfer.first, transfer.asked_pages = first, len(digests)
    request.prefetch = transfer
    need_not = min(len(digests), max(0, known - first))
    trailing = tuple(kind.window if kind.window < FOREVER else 0 for kind in cache.kinds)
    values = tuple(digests)
    cache.say(Lookup(transfer.number, request.number, first, values, need_not, trailing))


def is_worth_it(cache: Cache, pages: int) -> bool:
    """Whether a prefetch of so many pages is."""
    return pages * cache.config.page_size >= max(1, cache.config.prefetch_threshold_tokens)


def _under_way(cache: Cache, depth: int, digests: list[bytes]) -> StorageTransfer | None:
    """The oldest lookup or fetch that somebody waits for and that goes over the first of these
    pages, which is at this depth."""
    transfers = (item for item in cache.in_flight("lookup", "fetch") if not item.abandoned)
    over = (transfer for transfer in transfers if transfer.first <= depth < transfer.key.pages)
    same = (transfer for transfer in over if transfer.key.page_digests()[depth] in digests[:1])
    return next(same, None)


def _budget_left(cache: Cache) -> int:
    """How many pages more may be looked up and fetched at a time."""
    tokens, pages = cache.config.prefetch_budget_tokens, cache.config.host_pages[FULL]
    under_way = sum(transfer.pages for transfer in cache.in_flight("lookup", "fetch"))
    return max(0, (tokens // cache.config.page_size if tokens else pages) - under_way)


# -- who waits


def waiters(cache: Cache, transfer: StorageTransfer) -> list[Request]:
    """In the order in which they arrived; the first owns the transfer."""
    return [request for request in cache.requests.values() if request.prefetch is transfer]


def must_wait(cache: Cache, request: Request) -> bool:
    """A request that is to be admitted waits for its prefetch, by policy, or goes without it."""
    if request.prefetch is None:
        return False
    if not cache.waits:
        goes_without(cache, request)
        return False
    say_refused(cache, "fetching", 0, 0, request.number, after=request.prefetch.number)
    return True


def goes_without(cache: Cache, request: Request) -> None:
    """The request waits for its prefetch no longer, if it does."""
    if request.prefetch is not None:
        tell(cache, request, request.prefetch, 0, "late")
        leave(cache, request)


def leave(cache: Cache, request: Request) -> None:
    """The request has nothing to do with its prefetch any more, and nobody asks how it ended."""
    transfer, request.prefetch = request.prefetch, None
    if transfer is not None and not waiters(cache, transfer):
        give_up(cache, transfer)


def give_up(cache: Cache, transfer: StorageTransfer) -> None:
    """Nobody waits for the transfer."""
    if not transfer.abandoned:
        cache.say(Abandoned(transfer.number))
    transfer.abandoned = True


def is_over(cache: Cache, transfer: StorageTransfer, fetched: int, reason: PrefetchEnd) -> None:
    """A lookup or fetch ended. Its owner hears it, and the other requests begin anew: the tree may
    have for them what they lacked."""
    waiting = waiters(cache, transfer)
    for request in waiting:
        request.prefetch = None
    for at, request in enumerate(waiting):
        if at:
            look_for_rest(cache, request, again=True)
        else:
            tell(cache, request, transfer, fetched, reason)


def tell(
    cache: Cache, request: Request, transfer: StorageTransfer, fetched: int, reason: PrefetchEnd
) -> None:
    first, requested, result = transfer.first, transfer.asked_pages, transfer.found_pages
    cache.say(Prefetched(request.number, first, requested, result, fetched, reason))
