"""Loads and passes: how they begin, land and fail, and what happens when their request ends first.

    load     its target pages are lent to the flight until it lands. Then nodes take them over; a
             page is freed if the node got a copy meanwhile. A load lands at its own reply or at the
             reply of the prefill that read it, whichever comes first.
    prefill  the request's own pages are on loan while the pass runs. Pages that are given back in
             that time (abort, duplicates) are retiring until it ends. The passes of a request end
             in the order in which they began; the last one has its locks if the request is gone.

The flights of an aborted or restarted request go on and end like any other. Does not handle
backups, see `backup`, or what all flights have in common, see `flights`.
"""

from __future__ import annotations

import numpy as np

from .actions import NO_REQUEST, Load
from .errors import CoreBug
from .flights import add_legs, copies_of, end_leg
from .radix.locks import lock, open_receipt
from .radix.lru import offer
from .radix.node import Flight, Node
from .requests.record import Request
from .requests.tables import own_pages, write
from .state import State
from .types import BACKBONE, DEVICE, HOST, Pages


def lock_for_load(state: State, flight: Flight, path: list[Node], loads: list[list[Node]]) -> None:
    """Lock the sources of the load and the path above them until the reply."""
    flight.receipt = open_receipt(state, f"load {flight.id}")
    lock(state, flight.receipt, path, DEVICE)
    lock(state, flight.receipt, path, HOST)
    for index, nodes in enumerate(loads):
        if index != BACKBONE:
            lock(state, flight.receipt, nodes, HOST, index)
    if state.config.exchange_pages:
        promise_host_pages(state, flight, loads)


def promise_host_pages(state: State, flight: Flight, loads: list[list[Node]]) -> None:
    """Note how many host pages the load will free when it has landed."""
    for nodes in loads:
        held = [node.pages[HOST][len(flight.gives_up)] for node in nodes]
        pages = sum(len(one) for one in held if one is not None)
        state.giving_up[len(flight.gives_up)] += pages
        flight.gives_up.append(pages)


def loaded_nodes(flight: Flight) -> list[Node]:
    """The nodes whose host copies a load locks, including those of its path, deepest first."""
    receipt = flight.receipt
    entries = [] if receipt is None else [one for entries in receipt.locked for one in entries]
    nodes = {node.id: node for node, tier in entries if tier == HOST}
    return sorted(nodes.values(), key=lambda node: -node.end_page)


def begin_load(
    state: State,
    request: Request,
    flight: Flight,
    loads: list[list[Node]],
    targets: list[Pages],
) -> None:
    """Queue the load. loads, targets: by component, the nodes to load, parents first, and the
    device pages that are filled."""
    if request.load:
        raise CoreBug(f"request {request.id} begins a second load, {flight}")
    for index, nodes in enumerate(loads):
        add_legs(state, flight, index, nodes, targets[index])
    request.load = flight.id
    state.out.append(Load(flight.id, request.id, copies_of(state, flight)))


def land(state: State, flight: Flight) -> None:
    """The bytes of a load have arrived: nodes adopt the pages, and the request uses the nodes'. If
    the request is gone, its pass keeps those that it reads."""
    request = state.requests.get(flight.request)
    reader = request if request is not None else state.flights.get(flight.read_by)
    receipt = reader.receipt if reader is not None else None
    for leg in flight.legs:
        # everything above the node is on device: the path is locked, and parents land first
        node, index = leg.node, leg.component
        adopted = end_leg(state, leg, DEVICE, adopt=True)
        if node is None:
            continue
        if request is not None and not adopted and state.components[index].positional:
            _replace(request, index, node)
        if receipt is not None and (adopted or request is not None):
            lock(state, receipt, [node], DEVICE, index)
        else:
            offer(state.queues, state.eviction, node, DEVICE, index)
    flight.legs.clear()
    flight.request = NO_REQUEST
    if request is not None:
        request.load = 0


def _replace(request: Request, index: int, node: Node) -> None:
    """The node got a copy meanwhile: put that copy into the request's table."""
    held = node.pages[DEVICE][index]
    if held is None:
        raise CoreBug(f"{node} has neither what was loaded nor a copy that came before it")
    write(request, index, [(node.end_page - len(held), held)])


def cancel_load(state: State, flight: Flight) -> None:
    """A load failed: free its target pages. The host copies stay."""
    for leg in flight.legs:
        end_leg(state, leg, DEVICE, adopt=False)
    flight.legs.clear()


def begun_tokens(state: State, request: Request) -> int:
    """Tokens that are computed, or will be when the passes in flight have ended."""
    return (
        state.flights[request.passes[-1]].end_token if request.passes else request.computed_tokens
    )


def lend_own(state: State, request: Request, flight: Flight) -> None:
    """Put the request's own pages, and the target pages of its load, on loan to a pass."""
    if flight.lent:
        raise CoreBug(f"{flight} has loans already")
    load = state.flights.get(request.load)
    for index in range(len(state.components)):
        parts = [own_pages(state, request, index)]
        if load is not None:
            parts += [leg.target for leg in load.legs if leg.component == index]
        lent = parts[0] if len(parts) == 1 else np.concatenate(parts)
        flight.lent.append(lent)
        state.pools[DEVICE][index].lend(lent)


def orphan_flights(state: State, request: Request) -> bool:
    """Detach a request from its flights. Pages that they still use become free when they end.

    Returns True if its last pass has taken over the request's locks."""
    load = state.flights.get(request.load)
    if load is not None:
        load.request = NO_REQUEST
    for one in request.passes:
        state.flights[one].request = NO_REQUEST
    if not request.passes:
        return False
    last = request.passes[-1]
    if load is not None:
        load.read_by = last
    state.flights[last].receipt = request.receipt
    return True
