"""Bugs in the flights of storage: who waits for them, and what ends them."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import StorageDetached
from hicache.core.radix.node import FlightKind
from hicache.core.storage import flights
from hicache.core.types import Tier

from .base import bug

_abandon = flights.abandon
_end_every_wait = flights.end_every_wait
_in_flight = flights.in_flight


@bug(flights, "report_detached", rows=("C14",), kills="spec", faults=("storage detached",))
def detach_is_reported_too_early(state: Any) -> None:
    """Storage is reported as detached while actions for it are in flight."""
    if not state.attached:
        state.out.append(StorageDetached())


@bug(flights, "in_flight", kills="spec")
def one_store_too_many_in_flight(state: Any, kind: Any) -> int:
    """One store more than allowed is begun."""
    count = _in_flight(state, kind)
    return count - 1 if kind == "store" else count


@bug(flights, "leave", rows=("H18",), kills="spec")
def last_waiter_leaves_unnoticed(state: Any, request: Any) -> None:
    """A prefetch that nobody waits for any more is not abandoned."""
    flights._stop_waiting(state, request)


@bug(flights, "abandon", rows=("C2",), kills="pool-sum")
def abandoned_fetch_gives_its_pages_back_at_once(state: Any, flight: Any) -> None:
    """The host pages of a fetch that nobody waits for are freed while storage writes them."""
    _abandon(state, flight)
    if flight.kind is FlightKind.FETCH:
        for leg in flight.legs:
            state.pools[Tier.HOST][leg.component].give_back(leg.target)
        flight.legs.clear()


@bug(flights, "end_every_wait", rows=("H5",), kills="reset")
def flush_leaves_requests_waiting(state: Any, reason: Any) -> None:
    """After a flush, requests still wait for the prefetches from before it."""
    if reason != "flushed":
        _end_every_wait(state, reason)
