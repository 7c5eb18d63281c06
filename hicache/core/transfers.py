"""Flights: what is in flight, what it has on loan, and how loads and prefills end.

    load     targets are lent to the flight until it lands; landing makes them nodes' pages, or
             frees them where a node got its copy meanwhile. It lands at its reply, or at the
             reply of the prefill that read it, whichever comes first.
    prefill  the request's own pages are on loan while the pass runs, so that giving them back
             (abort, duplicates) only retires them.

An aborted request leaves its flights behind without a request; they end like any other.
"""

from __future__ import annotations

from .actions import NO_REQUEST, Copy, Load, Prefill
from .errors import CallerError
from .insertion import join
from .locks import lock, open_receipt, release
from .lru import offer
from .node import Flight, Leg, Node, Request
from .state import State
from .tree import BACKBONE, attach
from .types import FlightId, Pages, Tier


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


def begin_load(state: State, request: Request, flight: Flight, nodes: list[Node]) -> None:
    """Queue the load of host-only nodes into the pages behind the request's shared ones."""
    host = state.pools[Tier.HOST][BACKBONE]
    start = request.shared
    for node in nodes:
        source = node.pages[Tier.HOST][BACKBONE]
        assert source is not None, f"{node} has nothing to load"
        leg = Leg(flight, node, BACKBONE, source, request.table[start : node.end])
        start = node.end
        flight.legs.append(leg)
        node.legs.append(leg)
        host.lend(source)
        state.touched[node.id] = node
    request.load, request.loading = flight.id, start - request.shared
    copies = tuple(Copy(host.component, leg.source, leg.target) for leg in flight.legs)
    state.out.append(Load(flight.id, request.id, copies))


def lock_for_load(state: State, flight: Flight, path: list[Node]) -> None:
    """Sources stay where they are, and nothing above them goes away, until the reply."""
    flight.receipt = open_receipt(state, f"load {flight.id}")
    lock(state, flight.receipt, path, Tier.DEVICE)
    lock(state, flight.receipt, path, Tier.HOST)


def land(state: State, flight: Flight) -> None:
    """A load's bytes are there: nodes adopt its pages, and its request shares the nodes."""
    request = state.requests.get(flight.request)
    nodes: list[Node] = []
    for leg in flight.legs:
        state.pools[Tier.HOST][BACKBONE].repay(leg.source)
        if leg.node is not None:
            leg.node.legs.remove(leg)
            state.touched[leg.node.id] = leg.node
            nodes.append(leg.node)
        if request is None and (leg.node is None or not _adopt(state, leg.node, leg.target)):
            state.pools[Tier.DEVICE][BACKBONE].give_back(leg.target)
    flight.legs.clear()
    flight.request = NO_REQUEST
    if request is not None:
        request.load = request.loading = 0
        join(state, request, nodes)


def _adopt(state: State, node: Node, pages: Pages) -> bool:
    parent = node.parent
    if (
        parent is None
        or node.pages[Tier.DEVICE][BACKBONE] is not None
        or (parent.parent is not None and parent.pages[Tier.DEVICE][BACKBONE] is None)
    ):
        return False
    attach(state, node, Tier.DEVICE, BACKBONE, pages)
    offer(state.queues, state.eviction, node)
    return True


def cancel_load(state: State, flight: Flight) -> None:
    """A load failed: its targets hold garbage and go back; the host copies stay."""
    for leg in flight.legs:
        state.pools[Tier.HOST][BACKBONE].repay(leg.source)
        state.pools[Tier.DEVICE][BACKBONE].give_back(leg.target)
        if leg.node is not None:
            leg.node.legs.remove(leg)
            state.touched[leg.node.id] = leg.node
    flight.legs.clear()


def close_flight(state: State, flight: Flight) -> None:
    """The reply came: end the loans and locks that are left."""
    del state.flights[flight.id]
    state.pools[Tier.DEVICE][BACKBONE].repay(flight.lent)
    if flight.receipt is not None:
        release(state, flight.receipt)


def begin_prefill(state: State, request: Request, chunk: int) -> None:
    """Queue the next chunk of the prompt."""
    if chunk < 1 and request.computed < request.length:
        raise CallerError(f"chunk: expected at least 1 token, found {chunk}")
    flight = open_flight(state, "prefill", request)
    flight.lent = request.table[request.shared :]
    flight.end = min(request.computed + chunk, request.length)
    state.pools[Tier.DEVICE][BACKBONE].lend(flight.lent)
    request.prefill = flight.id
    after = (request.load,) if request.load else ()
    state.out.append(
        Prefill(
            flight.id,
            request.id,
            request.computed,
            flight.end,
            request.table,
            after,
            flight.end == request.length,
        )
    )


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
