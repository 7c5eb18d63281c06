"""Storage as a whole: attached, detached, lost, flushed.

While storage is detached, no action for it begins. Those in flight go on and end: what a fetch
brings is attached to the tree, and what a store writes is not noted.
"""

from __future__ import annotations

from ..actions import NO_REQUEST, Delete, Refused
from ..errors import CallerError
from ..events import DeleteDone, DetachWanted, StorageAttached
from ..flights import flight_of
from ..radix.node import FlightKind
from ..state import State
from ..types import BACKBONE
from .flights import (
    abandon,
    close_storage_flight,
    end_every_wait,
    oldest,
    open_storage_flight,
    report_detached,
)
from .queue import forget_storage
from .stores import pump


def attach_storage(state: State, event: StorageAttached) -> None:
    if not state.config.has_host:
        raise CallerError(
            f"{type(event).__name__}: expected a core with host pages, found host_pages "
            f"{state.config.host_pages}; storage is filled from host"
        )
    if not state.attached and state.storage_flights:
        name, count = state.config.components[BACKBONE], len(state.storage_flights)
        after = oldest(state)
        state.out.append(Refused(NO_REQUEST, "detaching", count, 0, NO_REQUEST, name, after))
        return
    state.attached = True
    forget_storage(state)


def detach_storage(state: State, event: DetachWanted) -> None:
    if not state.attached:
        raise CallerError(f"{type(event).__name__}: expected an attached storage, found none")
    state.attached = False
    forget_storage(state)
    end_every_wait(state, "detached")
    for flight in state.storage_flights.values():
        abandon(state, flight)
    report_detached(state)


def begin_flush(state: State) -> None:
    """The tree is about to be flushed: nobody needs what is being fetched or stored for it."""
    end_every_wait(state, "flushed")
    for flight in state.storage_flights.values():
        if flight.kind is not FlightKind.DELETE:
            abandon(state, flight)
    forget_storage(state)


def delete_stored(state: State) -> None:
    """The tree was flushed: delete what storage has, too."""
    if state.attached:
        flight = open_storage_flight(state, FlightKind.DELETE)
        state.out.append(Delete(flight.id))


def delete_done(state: State, event: DeleteDone) -> None:
    flight = flight_of(state, event.flight, FlightKind.DELETE)
    close_storage_flight(state, flight)
    if state.attached:
        pump(state)
    report_detached(state)
