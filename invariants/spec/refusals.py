"""What a refusal says, so that whoever is refused knows what to wait for.

too_large      the request can never fit
arriving       another request is loading this prefix; ask again after that load's reply
writing_back   replies under way make enough pages available; ask again after this one
no_pages       they do not: a request has to end, or to be retracted

Each rule supposes something and looks at what would be then: that the replies come in the order in
which the transfers began, and that the request shares all that it can.
"""

from hicache.core.actions import NO_REQUEST, RefusalReason, Refused

from .cache import Cache
from .kinds import FULL
from .matching import known_of, reach
from .records import DEVICE, HOST, Hold, Request


def say_refused(
    cache: Cache,
    reason: RefusalReason,
    needed: int,
    available: int,
    request: int = NO_REQUEST,
    kind: int = FULL,
    retract: int = NO_REQUEST,
    after: int = 0,
) -> None:
    name = cache.kinds[kind].name
    cache.say(Refused(request, reason, needed, available, retract, name, after))


def can_never_fit(cache: Cache, request: Request, pages: int) -> bool:
    """A request can have every page of the device but those that pins hold beside its own
    prefix. Says so if that is too few."""
    most = cache.capacity(DEVICE, FULL)
    if cache.pins:
        pinned = set().union(*(pin.hold for pin in cache.pins.values()))
        most -= len((pinned & cache.cached[DEVICE][FULL]) - _shared(cache, request))
    if pages > most:
        say_refused(cache, "too_large", pages, most, request.number)
    return pages > most


def _shared(cache: Cache, request: Request) -> Hold:
    """What a running request holds, and the device pages that another could reuse now without a
    load."""
    if request in cache.running:
        return request.hold
    known = known_of(cache, request.key, request.match_pages)
    pages = [page for node in known.nodes for page in node.copies[DEVICE][FULL] or ()]
    return set(pages[: reach(cache, known).device])


def lacks_pages(
    cache: Cache,
    request: Request,
    kind: int,
    needed: int,
    hold: Hold | None = None,
    retract: bool = False,
) -> None:
    """Refuses for lack of pages a request that would take this hold. With `retract` it names the
    request that was admitted last, unless a reply will do."""
    hold = hold or set()
    after = _first_reply_that_helps(cache, kind, needed, hold)
    whom = cache.running[-1].number if retract and not after else NO_REQUEST
    reason: RefusalReason = "writing_back" if after else "no_pages"
    free = cache.available(DEVICE, kind, hold)
    say_refused(cache, reason, needed, free, request.number, kind, whom, after)


def _first_reply_that_helps(cache: Cache, kind: int, needed: int, hold: Hold) -> int:
    """The transfer with whose reply enough pages are available; 0 if there is none.

    If enough are available already, what goes next is being copied to host. Then it is the transfer
    with which all is free that leaves with its copy; if that is too little, the last with which
    something leaves; if nothing does, the first copy that keeps anything from going.
    """
    begun = list(cache.transfers.values())
    free_pages = [cache.available(DEVICE, kind, hold, begun[:at]) for at in range(len(begun) + 1)]
    if free_pages[0] < needed:
        pairs = zip(begun, free_pages[1:], strict=True)
        return next((item.number for item, free in pairs if free >= needed), 0)
    leaving = [transfer for transfer in begun if transfer.frees.get(kind)]
    free = cache.free(DEVICE, kind)
    for transfer in leaving:
        free += transfer.frees[kind]
        if free >= needed:
            return transfer.number
    keeping = [
        transfer
        for transfer, before, after in zip(begun, free_pages, free_pages[1:], strict=False)
        if transfer.to == HOST and after > before
    ]
    return next((transfer.number for transfer in [*leaving[-1:], *keeping]), 0)
