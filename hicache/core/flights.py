"""Flights: how an action in flight is opened, gets its legs, ends them and is closed.

    kind      legs             lent besides              works for
    load      host to device   nothing                   its request, until it has landed
    backup    device to host   nothing                   nobody
    prefill   none             the request's own pages   its request

Lives here: the one way to do each of these, for all three kinds. Must not live here: when a copy
is due (`backup`, `placement`), what its end means to nodes and requests (`backup`, `transfers`), or
which refusal waits for it (`refusals`).
"""

from __future__ import annotations

from collections.abc import Sequence

from .actions import NO_REQUEST, Copy
from .errors import CallerError, CoreBug
from .radix.locks import release
from .radix.node import Flight, FlightKind, Leg, Node
from .radix.tree import attach
from .state import State
from .types import FlightId, Pages, RequestId, Tier

_BACKUP = FlightKind.BACKUP


def open_flight(state: State, kind: FlightKind, request: RequestId = NO_REQUEST) -> Flight:
    """A new flight, without legs, loans or locks. Its number is the action's."""
    flight = Flight(state.next_flight, kind, request, frees=[0] * len(state.components))
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
    """Copy what these nodes have of a component to the `target` pages, in order. What is read is on
    loan until the reply."""
    tier = Tier.DEVICE if flight.kind is _BACKUP else Tier.HOST
    start = 0
    for node in nodes:
        source = node.pages[tier][index]
        if source is None:
            raise CoreBug(f"{node} has nothing to copy of component {index}")
        leg = Leg(flight, node, index, source, target[start : start + len(source)])
        start += len(source)
        flight.legs.append(leg)
        node.legs.append(leg)
        state.pools[tier][index].lend(source)
        state.touched[node.id] = node
    if start != len(target):
        raise CoreBug(f"{flight} copies {start} pages to {len(target)}")


def copies_of(state: State, flight: Flight) -> tuple[Copy, ...]:
    """The legs as an action says them."""
    names = state.config.components
    return tuple(Copy(names[leg.component], leg.source, leg.target) for leg in flight.legs)


def end_leg(state: State, leg: Leg, target: Tier, adopt: bool) -> bool:
    """The copy to that tier is over. With `adopt` a node that lacks what was copied takes over the
    target pages; otherwise, or where there is no node, they go back. Whether it took them over."""
    index, node = leg.component, leg.node
    state.pools[1 - target][index].repay(leg.source)
    if node is not None:
        node.legs.remove(leg)
        state.touched[node.id] = node
        if adopt and node.pages[target][index] is None:
            attach(state, node, target, index, leg.target)
            return True
    state.pools[target][index].give_back(leg.target)
    return False


def close_flight(state: State, flight: Flight) -> None:
    """The reply came, and its legs ended: end the loans and locks that are left."""
    if flight.legs or state.flights.pop(flight.id, None) is not flight:
        raise CoreBug(f"{flight} is closed with {len(flight.legs)} legs")
    for index, pages in enumerate(flight.lent):
        state.pools[Tier.DEVICE][index].repay(pages)
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
    """An eviction waits for this backup: then so many pages of a component can go."""
    if flight.kind is not _BACKUP or pages < 1:
        raise CoreBug(f"{flight} is to evict {pages} pages")
    flight.evicts = True
    flight.frees[index] = pages
    state.writing_back[index] += pages


def forget_nodes(state: State, flight: Flight) -> None:
    """The tree was flushed while it is in flight: it copies for nobody any more, and no eviction
    waits for it."""
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
