"""Refusals: the reason why pages are short, and what will change the answer.

    no_pages       requests use the pages: one of them has to end or to be retracted
    writing_back   replies under way free enough device pages, or unlock them for eviction

Does not decide whether a request is refused, see `placement` and `admission`, or make room, see
`reclaim`.
"""

from __future__ import annotations

from .actions import NO_REQUEST, RefusalReason, Refused
from .radix.node import FlightKind, Node
from .state import State
from .types import BACKBONE, DEVICE, FlightId, PageState, RequestId


def refuse(
    state: State,
    request: RequestId,
    reason: RefusalReason,
    needed: int,
    available: int,
    preempt: RequestId = NO_REQUEST,
    component: int = BACKBONE,
    after: FlightId = 0,
) -> None:
    name = state.config.components[component]
    state.out.append(Refused(request, reason, needed, available, preempt, name, after))


def refuse_room(
    state: State, request: RequestId, component: int, needed: int, preempt: bool = False
) -> None:
    """Refuse for lack of pages. Names the reply that frees enough of them. If there is none, and
    with `preempt`, names the request to retract."""
    room = state.pools[DEVICE][component].available
    after = _reply_that_frees(state, component, needed)
    reason: RefusalReason = "writing_back" if after else "no_pages"
    victim = next(reversed(state.running)) if preempt and not after else NO_REQUEST
    refuse(state, request, reason, needed, room, victim, component, after)


def _reply_that_frees(state: State, component: int, needed: int) -> FlightId:
    """The flight after whose reply `needed` pages are available, with the replies before it; 0 if
    there is none.

    If enough pages are available already, eviction is waiting: for pages that it writes back, or
    for a copy in flight of a colder page.
    """
    pool = state.pools[DEVICE][component]
    if pool.available < needed:
        room = pool.available
        for reply, pages in _coming(state, component):
            room += pages
            if room >= needed:
                return reply
        return 0
    room, last = pool.free, 0
    for flight in state.flights.values():
        if flight.evicts and flight.frees[component]:
            room, last = room + flight.frees[component], flight.id
            if room >= needed:
                break
    if last:
        return last
    copies = (reply for reply, _ in _coming(state, component))
    return next((one for one in copies if state.flights[one].kind is FlightKind.BACKUP), 0)


def _coming(state: State, component: int) -> list[tuple[FlightId, int]]:
    """(flight, device pages that its reply frees or unlocks), in the order in which the flights
    began. A page that several flights lock or use counts for the last of them."""
    ends = {one.receipt.id: one.id for one in state.flights.values() if one.receipt is not None}
    coming = dict.fromkeys(state.flights, 0)
    if state.pools[DEVICE][component].counts[PageState.RETIRING]:
        for user in _last_users(state, component).values():
            coming[user] += 1
    locked: dict[int, Node] = {}
    for flight in state.flights.values():
        if flight.kind is FlightKind.LOAD and flight.request == NO_REQUEST:
            legs = (leg for leg in flight.legs if leg.component == component)
            last = flight.read_by if flight.read_by in coming else flight.id
            coming[last] += sum(len(leg.target) for leg in legs)
        if flight.receipt is not None:
            entries = flight.receipt.locked[component]
            locked.update((node.id, node) for node, tier in entries if tier == DEVICE)
    for node in locked.values():
        pages, holders = node.pages[DEVICE][component], node.locks[DEVICE][component]
        if pages is not None and holders.keys() <= ends.keys():
            coming[max(ends[holder] for holder in holders)] += len(pages)
    return [(flight, pages) for flight, pages in coming.items() if pages]


def _last_users(state: State, component: int) -> dict[int, FlightId]:
    """For each device page that was given back on loan, the last flight that uses it."""
    pages = state.pools[DEVICE][component].state
    last: dict[int, FlightId] = {}
    for flight in state.flights.values():
        lent = flight.lent[component : component + 1]
        if flight.kind is FlightKind.BACKUP:
            lent = [leg.source for leg in flight.legs if leg.component == component]
        for part in lent:
            retiring = part[pages[part] == PageState.RETIRING]
            last.update(dict.fromkeys(retiring.tolist(), flight.id))
    return last
