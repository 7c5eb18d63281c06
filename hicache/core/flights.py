"""Flights: open one for an action, add its legs, end the legs, and close the flight.

    kind      legs             other pages on loan       request
    load      host to device   none                      its request, until it has landed
    backup    device to host   none                      none
    prefill   none             the request's own pages   its request

All kinds of flight use these functions; for those of storage, see also `storage/flights`. Does not
decide when to copy, see `backup` and `placement`; does not change requests when a flight ends, see
`transfers`; does not choose which refusal waits for a flight, see `refusals`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .actions import NO_REQUEST, Copy
from .errors import CallerError, CoreBug
from .radix.locks import release
from .radix.node import Flight, FlightKind, Leg, Node, drop_leg
from .radix.tree import attach
from .state import State
from .types import DEVICE, HOST, FlightId, Pages, RequestId

_BACKUP = FlightKind.BACKUP


def open_flight(state: State, kind: FlightKind, request: RequestId = NO_REQUEST) -> Flight:
    """A new flight, without legs, loans or locks. The action carries its number."""
    flight = Flight(state.next_flight, kind, request, [0] * len(state.components))
    if flight.id in state.flights:
        raise CoreBug(f"{flight} is in flight already")
    state.next_flight += 1
    state.flights[flight.id] = flight
    if kind is _BACKUP:
        state.backups += 1
    return flight


def flight_of(state: State, flight_id: FlightId, kind: FlightKind) -> Flight:
    """The open flight that a reply names. Raises CallerError for any other reply."""
    flight = state.flights.get(flight_id) if isinstance(flight_id, int) else None
    if flight is None or flight.kind is not kind:
        found = "nothing in flight" if flight is None else f"a {flight.kind}"
        raise CallerError(
            f"flight {flight_id}: expected a {kind} in flight, found {found}; "
            "answer every action exactly once"
        )
    return flight


def add_legs(
    state: State, flight: Flight, index: int, nodes: Sequence[Node], target: Pages
) -> None:
    """Add one leg for each node: copy the node's pages of the component to the next `target` pages.
    The source pages are on loan until the reply. A store has no target pages."""
    tier = DEVICE if flight.kind is _BACKUP else HOST
    start = 0
    for node in nodes:
        source = node.pages[tier][index]
        if source is None:
            raise CoreBug(f"{node} has nothing to copy of component {index}")
        leg = Leg(flight, node, index, source, target[start : start + len(source)])
        start += len(source)
        flight.legs.append(leg)
        node.legs += (leg,)
        state.pools[tier][index].lend(source)
        state.touched[node.id] = node
    if start != len(target) and flight.kind is not FlightKind.STORE:
        raise CoreBug(f"{flight} copies {start} pages to {len(target)}")


def copies_of(state: State, flight: Flight) -> tuple[Copy, ...]:
    """The legs in the form that an action carries."""
    names = state.config.components
    return tuple(Copy(names[leg.component], leg.source, leg.target) for leg in flight.legs)


def end_leg(state: State, leg: Leg, target: int, adopt: bool) -> bool:
    """End one leg. target: the tier that was copied to. With `adopt`, the node takes over the
    target pages if it has no copy there; otherwise they are freed. Returns whether it took them."""
    index, node = leg.component, leg.node
    state.pools[1 - target][index].repay(leg.source)
    if node is not None:
        drop_leg(node, leg)
        state.touched[node.id] = node
        if adopt and node.pages[target][index] is None:
            attach(state, node, target, index, leg.target)
            return True
    state.pools[target][index].give_back(leg.target)
    return False


def close_flight(state: State, flight: Flight) -> None:
    """Close a flight whose legs have ended: end its other loans and release its locks."""
    if flight.legs or state.flights.pop(flight.id, None) is not flight:
        raise CoreBug(f"{flight} is closed with {len(flight.legs)} legs")
    for index, pages in enumerate(flight.lent):
        state.pools[DEVICE][index].repay(pages)
    if flight.kind is _BACKUP:
        state.backups -= 1
        if state.backups < 0:
            raise CoreBug(f"{flight} ends, and fewer than no backups are left")
    if flight.evicts:
        _stop_evicting(state, flight)
    for index, count in enumerate(flight.gives_up):
        state.giving_up[index] -= count
    if flight.receipt is not None:
        release(state, flight.receipt)


def evict_with(state: State, flight: Flight, index: int, pages: int) -> None:
    """Note that an eviction waits for this backup, which then frees `pages` device pages of a
    component."""
    if flight.kind is not _BACKUP or pages < 1:
        raise CoreBug(f"{flight} is to evict {pages} pages")
    flight.evicts = True
    flight.frees[index] = pages
    state.writing_back[index] += pages


def forget_nodes(state: State, flight: Flight) -> None:
    """The tree is flushed while the flight is open: its legs belong to no node any more, and no
    eviction waits for it."""
    if flight.evicts:
        _stop_evicting(state, flight)
    flight.receipt = None
    for leg in flight.legs:
        leg.node = None


def _stop_evicting(state: State, flight: Flight) -> None:
    flight.evicts = False
    for index, pages in enumerate(flight.frees):
        state.writing_back[index] -= pages
        if state.writing_back[index] < 0:
            raise CoreBug(f"{flight} ends, and fewer than no pages are written back")
        flight.frees[index] = 0
