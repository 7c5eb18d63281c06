"""Bugs in `transfers` and `flights`: loads, passes, and what they hold until their reply."""

from __future__ import annotations

from typing import Any

from hicache.core import backup, flights, transfers
from hicache.core.radix import locks
from hicache.core.radix.node import set_pages
from hicache.core.types import NO_PAGES, Tier

from .base import Patch, bug

_add_legs = backup._add_legs
_flight_of = flights.flight_of
_open_flight = flights.open_flight
_begin_load = transfers.begin_load
_land = transfers.land
_orphan_flights = transfers.orphan_flights


@bug(transfers, "lock_for_load", rows=("C2",), kills="lock-bal")
def load_locks_the_backbone_only(state: Any, flight: Any, path: Any, loads: Any) -> None:
    """Host copies of windows and states can go while a load still reads them."""
    flight.receipt = locks.open_receipt(state, f"load {flight.id}")
    locks.lock(state, flight.receipt, path, Tier.DEVICE)
    locks.lock(state, flight.receipt, path, Tier.HOST)


@bug(transfers, "lock_for_load", rows=("C1",), kills="lock-bal")
def load_source_is_not_locked(state: Any, flight: Any, path: Any, loads: Any) -> None:
    """The host copies that a load reads can be evicted before its reply."""
    flight.receipt = locks.open_receipt(state, f"load {flight.id}")
    locks.lock(state, flight.receipt, path, Tier.DEVICE)


@bug(transfers, "begin_load", rows=("C11",), kills="lock-bal")
def load_overwrites_node_pages(
    state: Any, request: Any, flight: Any, loads: Any, targets: Any
) -> None:
    """A load writes its own page numbers into the nodes whose host copies it reads."""
    _begin_load(state, request, flight, loads, targets)
    for leg in flight.legs:
        set_pages(leg.node, Tier.HOST, leg.component, leg.target)


@bug(rows=("B9",))
def one_transfer_per_node(patch: Patch) -> None:
    """A transfer of another component makes a node forget the one in flight."""

    def mark(flight: Any) -> None:
        for leg in flight.legs:
            leg.node.legs = tuple(one for one in leg.node.legs if one.flight is flight)

    def load(state: Any, request: Any, flight: Any, loads: Any, targets: Any) -> None:
        _begin_load(state, request, flight, loads, targets)
        mark(flight)

    def copy(state: Any, flight: Any, *rest: Any) -> None:
        _add_legs(state, flight, *rest)
        mark(flight)

    patch(transfers, "begin_load", load)
    patch(backup, "_add_legs", copy)


@bug(transfers, "land", kills="spec")
def load_of_a_gone_request_is_thrown_away(state: Any, flight: Any) -> None:
    """The pages of a load whose request was aborted are freed when they arrive, not cached."""
    if flight.request in state.requests:
        _land(state, flight)
    else:
        transfers.cancel_load(state, flight)


@bug(
    transfers,
    "cancel_load",
    rows=("C16",),
    kills="bytes",
    faults=("fail", "torn", "torn whole", "late error"),
)
def failed_load_is_adopted(state: Any, flight: Any) -> None:
    """The pages of a load that failed are put into the tree."""
    transfers.land(state, flight)


@bug(transfers, "lend_own", rows=("C5",), kills="pin-io")
def pass_pages_are_not_lent(state: Any, request: Any, flight: Any) -> None:
    """Pages of a request that is gone are free while its last pass still writes them."""
    flight.lent.extend(NO_PAGES for _ in state.components)


@bug(transfers, "lend_own", kills="pin-io")
def passes_hold_no_loan(state: Any, request: Any, flight: Any) -> None:
    """The pages of a running pass are not lent to it, so an abort frees them at once."""
    flight.lent.clear()


@bug(
    transfers,
    "orphan_flights",
    faults=(
        "abort while arriving",
        "abort while prefilling",
        "abort before the reply",
        "abort, then it fails",
    ),
)
def abort_ends_the_load(state: Any, request: Any) -> bool:
    """Aborting a request ends its load at once, although the copy is still running."""
    load = state.flights.get(request.load)
    handed_over = _orphan_flights(state, request)
    if load is not None and load.legs:
        transfers.cancel_load(state, load)
        flights.close_flight(state, load)
    return handed_over


@bug(transfers, "orphan_flights", kills="lock-bal")
def abort_unlocks_what_its_pass_reads(state: Any, request: Any) -> bool:
    """Aborting a request releases what its pass still reads."""
    if _orphan_flights(state, request):
        state.flights[request.prefill].receipt = None
    return False


@bug(flights, "open_flight", faults=("lost", "stale poll", "clog"))
def pass_table_has_four_places(state: Any, kind: Any, *request: int) -> Any:
    """A table of passes has four places: the fifth pass takes the place of the first."""
    passes = [one for one in state.flights.values() if one.kind == kind == "prefill"]
    if len(passes) >= 4:
        del state.flights[passes[0].id]
    return _open_flight(state, kind, *request)


@bug(flights, "flight_of", faults=("reply of another kind",))
def reply_kind_is_not_checked(state: Any, flight_id: int, kind: Any) -> Any:
    """A reply is accepted for any kind of flight, a load's for that of a pass."""
    flight = state.flights.get(flight_id)
    return flight if flight is not None else _flight_of(state, flight_id, kind)
