"""Flights of the third tier, and the requests that wait for a prefetch.

    kind      legs                             locks                       request
    lookup    none                             none                        the oldest waiter
    fetch     host pages that are filled,      host copies of the known    the oldest waiter
              of no node                       path
    store     host pages of one node           host copies that are read   none
    delete    none                             none                        none

A lookup and the fetch that follows it are one prefetch. Requests that want what a prefetch brings
join it. They are its waiters, in the order of their arrival. If the last of them leaves, the flight
is abandoned: its reply still ends it.
"""

from __future__ import annotations

from bisect import insort

from ..actions import NO_REQUEST, Abandoned, Prefetched, PrefetchEnd, StorageDetached
from ..errors import CoreBug
from ..flights import close_flight, open_flight
from ..radix.node import Flight, FlightKind
from ..requests.record import Request
from ..state import State
from ..types import FlightId

PREFETCHES = (FlightKind.LOOKUP, FlightKind.FETCH)


def open_storage_flight(state: State, kind: FlightKind) -> Flight:
    flight = open_flight(state, kind)
    flight.beliefs_since = state.beliefs_since
    state.storage_flights[flight.id] = flight
    return flight


def close_storage_flight(state: State, flight: Flight) -> None:
    if flight.waiters or state.storage_flights.pop(flight.id, None) is not flight:
        raise CoreBug(f"{flight} is closed and {flight.waiters} wait for it")
    close_flight(state, flight)


def report_detached(state: State) -> None:
    """After a reply: if it was the last one since storage was detached, say so."""
    if not state.attached and not state.storage_flights:
        state.out.append(StorageDetached())


def prefetches(state: State) -> list[Flight]:
    """The lookups and fetches in flight, the oldest first."""
    return [one for one in state.storage_flights.values() if one.kind in PREFETCHES]


def in_flight(state: State, kind: FlightKind) -> int:
    """How many actions of this kind are in flight."""
    return sum(one.kind is kind for one in state.storage_flights.values())


def prefetching_tokens(state: State) -> int:
    """Tokens that are being looked up or fetched."""
    return sum(one.budget_tokens for one in prefetches(state))


def join(state: State, request: Request, flight: Flight) -> None:
    """The request waits for this prefetch now."""
    if request.prefetch or request.admitted or flight.abandoned:
        raise CoreBug(f"request {request.id} is to wait for {flight}")
    request.prefetch = flight.id
    insort(flight.waiters, request.id, key=lambda one: state.requests[one].arrived)
    flight.request = flight.waiters[0]
    state.touched_requests[request.id] = None


def leave(state: State, request: Request) -> None:
    """The request does not wait for its prefetch any more. If nobody else does, the flight is
    abandoned."""
    flight = _stop_waiting(state, request)
    if not flight.waiters:
        abandon(state, flight)


def let_go(state: State, request: Request, reason: PrefetchEnd) -> None:
    """The request stops waiting for its prefetch, and is told so."""
    report(state, request, state.flights[request.prefetch], 0, reason)
    leave(state, request)


def release_waiters(state: State, flight: Flight) -> list[Request]:
    """The prefetch has ended, or another flight goes on with it: its waiters, who wait for nothing
    now."""
    waiters = [state.requests[one] for one in flight.waiters]
    for request in waiters:
        request.prefetch = 0
        state.touched_requests[request.id] = None
    flight.waiters, flight.request = [], NO_REQUEST
    return waiters


def _stop_waiting(state: State, request: Request) -> Flight:
    flight = state.flights.get(request.prefetch)
    if flight is None or request.id not in flight.waiters:
        raise CoreBug(f"request {request.id} does not wait for flight {request.prefetch}")
    flight.waiters.remove(request.id)
    flight.request = flight.waiters[0] if flight.waiters else NO_REQUEST
    request.prefetch = 0
    state.touched_requests[request.id] = None
    return flight


def abandon(state: State, flight: Flight) -> None:
    """Nobody needs what this flight does any more."""
    if not flight.abandoned:
        flight.abandoned = True
        state.out.append(Abandoned(flight.id))


def end_every_wait(state: State, reason: PrefetchEnd) -> None:
    """Storage is flushed or detached: every request that waits for a prefetch is told so, in the
    order of arrival."""
    waiting = [(request, flight) for flight in prefetches(state) for request in flight.waiters]
    waiting.sort(key=lambda one: state.requests[one[0]].arrived)
    for number, flight in waiting:
        report(state, state.requests[number], flight, 0, reason)
        _stop_waiting(state, state.requests[number])


def report(
    state: State, request: Request, flight: Flight, fetched: int, reason: PrefetchEnd
) -> None:
    """Tell a request what became of the prefetch that it waits for."""
    state.out.append(
        Prefetched(
            request.id,
            flight.first_page,
            flight.asked_pages,
            flight.found_pages,
            fetched,
            reason,
        )
    )


def oldest(state: State) -> FlightId:
    """The oldest action for storage in flight; 0 if there is none."""
    return next(iter(state.storage_flights), 0)
