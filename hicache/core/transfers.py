"""Flights: what is in flight, what it has on loan, and how loads and prefills end.

    load     targets are lent to the flight until it lands; landing makes them nodes' pages, or
             frees them where a node got its copy meanwhile. It lands at its reply, or at the
             reply of the prefill that read it, whichever comes first.
    prefill  the request's own pages are on loan while the pass runs, so that giving them back
             (abort, duplicates) only retires them.

An aborted request leaves its flights behind without a request; they end like any other.
"""

from __future__ import annotations

import numpy as np

from .actions import NO_REQUEST, Copy, Load
from .errors import CallerError
from .radix.locks import lock, open_receipt, release
from .radix.lru import offer
from .radix.node import Flight, Leg, Node, Request
from .radix.tree import BACKBONE, attach
from .state import State
from .types import FlightId, Pages, Tier, frozen


def flight_of(state: State, flight_id: FlightId, kind: str) -> Flight:
    """The open flight that a reply names. Raises CallerError for any other reply."""
    flight = state.flights.get(flight_id)
    if flight is None or flight.kind != kind:
        found = "nothing in flight" if flight is None else f"a {flight.kind}"
        raise CallerError(
            f"flight {flight_id}: expected a {kind} in flight, found {found}; "
            "answer every action exactly once"
        )
    return flight


def open_flight(state: State, kind: str, request: Request) -> Flight:
    flight = Flight(state.next_flight, kind, request.id, None)
    state.next_flight += 1
    state.flights[flight.id] = flight
    return flight


def lock_for_load(state: State, flight: Flight, path: list[Node], loads: list[list[Node]]) -> None:
    """Sources stay where they are, and nothing above them goes away, until the reply."""
    flight.receipt = open_receipt(state, f"load {flight.id}")
    lock(state, flight.receipt, path, Tier.DEVICE)
    lock(state, flight.receipt, path, Tier.HOST)
    for index, nodes in enumerate(loads):
        if index != BACKBONE:
            lock(state, flight.receipt, nodes, Tier.HOST, index)


def begin_load(
    state: State,
    request: Request,
    flight: Flight,
    loads: list[list[Node]],
    targets: list[Pages],
) -> None:
    """Queue the load of what these nodes have on host only, by component, parents first."""
    for index, nodes in enumerate(loads):
        start = 0
        for node in nodes:
            source = node.pages[Tier.HOST][index]
            assert source is not None, f"{node} has nothing to load"
            leg = Leg(flight, node, index, source, targets[index][start : start + len(source)])
            start += len(source)
            flight.legs.append(leg)
            node.legs.append(leg)
            state.pools[Tier.HOST][index].lend(source)
            state.touched[node.id] = node
    request.load = flight.id
    names = state.config.components
    copies = tuple(Copy(names[leg.component], leg.source, leg.target) for leg in flight.legs)
    state.out.append(Load(flight.id, request.id, copies))


def land(state: State, flight: Flight) -> None:
    """A load's bytes are there: nodes adopt its pages, and its request shares the nodes."""
    request = state.requests.get(flight.request)
    for leg in flight.legs:
        node, index = leg.node, leg.component
        state.pools[Tier.HOST][index].repay(leg.source)
        if node is None:
            state.pools[Tier.DEVICE][index].give_back(leg.target)
            continue
        node.legs.remove(leg)
        state.touched[node.id] = node
        held = node.pages[Tier.DEVICE][index]
        if held is None:  # all above it is there: the path is locked, and parents land first
            attach(state, node, Tier.DEVICE, index, leg.target)
        else:
            state.pools[Tier.DEVICE][index].give_back(leg.target)
            if request is not None and state.components[index].positional:
                _replace(request, index, node, held)
        if request is not None and request.receipt is not None:
            lock(state, request.receipt, (node,), Tier.DEVICE, index)
        else:
            offer(state.queues, state.eviction, node, Tier.DEVICE, index)
    flight.legs.clear()
    flight.request = NO_REQUEST
    if request is not None:
        request.load = 0


def _replace(request: Request, index: int, node: Node, held: Pages) -> None:
    """The node got its copy meanwhile: the request's table names that one from now on."""
    table = request.tables[index].copy()
    table[node.end_page - len(held) : node.end_page] = held
    request.tables[index] = frozen(table)


def cancel_load(state: State, flight: Flight) -> None:
    """A load failed: its targets hold garbage and go back; the host copies stay."""
    for leg in flight.legs:
        state.pools[Tier.HOST][leg.component].repay(leg.source)
        state.pools[Tier.DEVICE][leg.component].give_back(leg.target)
        if leg.node is not None:
            leg.node.legs.remove(leg)
            state.touched[leg.node.id] = leg.node
    flight.legs.clear()


def close_flight(state: State, flight: Flight) -> None:
    """The reply came: end the loans and locks that are left."""
    del state.flights[flight.id]
    for index, pages in enumerate(flight.lent):
        state.pools[Tier.DEVICE][index].repay(pages)
    if flight.receipt is not None:
        release(state, flight.receipt)


def lend_own(state: State, request: Request, flight: Flight) -> None:
    """A pass begins: what the request has for itself, or a load brings it, is on loan to it."""
    load = state.flights.get(request.load)
    for index in range(len(state.components)):
        parts = [own_pages(state, request, index)]
        if load is not None:
            parts += [leg.target for leg in load.legs if leg.component == index]
        lent = parts[0] if len(parts) == 1 else np.concatenate(parts)
        flight.lent.append(lent)
        state.pools[Tier.DEVICE][index].lend(lent)


def own_pages(state: State, request: Request, index: int) -> Pages:
    """Device pages of a component that belong to the request itself."""
    pages = request.tables[index]
    if index == BACKBONE:
        return pages[request.shared_pages :]
    if state.components[index].positional:
        pages = pages[request.shared_pages :]
    own: Pages = pages[pages >= 0]
    return own


def orphan_flights(state: State, request: Request) -> bool:
    """Cut a request's flights loose; True if one of them now holds the request's locks."""
    load = state.flights.get(request.load)
    if load is not None:
        load.request = NO_REQUEST
    prefill = state.flights.get(request.prefill)
    if prefill is None:
        return False
    prefill.request = NO_REQUEST
    prefill.receipt = request.receipt
    return True
