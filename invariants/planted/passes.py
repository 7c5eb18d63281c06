"""Bugs in several passes of one request that are in flight at once."""

from __future__ import annotations

from typing import Any

from hicache.core import admission, transfers, validation
from hicache.core.requests import checkpoints, windows
from hicache.runtime.controller import COMPUTE
from invariants.fuzz.device.hand import DeviceHand

from .base import Patch, bug

_choose_checkpoint_slots = checkpoints.choose_checkpoint_slots
_release_behind = windows.release_behind
_orphan_flights = transfers.orphan_flights
_prefill_done = admission.prefill_done
_launch = DeviceHand._launch


@bug(checkpoints, "choose_checkpoint_slots", kills="hb-write", passes=2)
def passes_share_a_checkpoint_slot(state: Any, request: Any, flight: Any, start: int) -> None:
    """A pass stores a state in the slot in which one before it still stores another."""
    passes, request.passes = request.passes, []
    _choose_checkpoint_slots(state, request, flight, start)
    request.passes = passes


@bug(passes=2)
def window_of_a_pass_in_flight_is_freed(patch: Patch) -> None:
    """The next chunk frees what lies behind its own window, which a pass in flight still reads."""

    def continue_prefill(state: Any, event: Any) -> None:
        request = state.running.get(event.request)
        if request is not None and request.passes:
            _release_behind(state, request, transfers.begun_tokens(state, request))
        _continue_prefill(state, event)

    _continue_prefill = admission.continue_prefill
    patch(admission, "continue_prefill", continue_prefill)


@bug(transfers, "begun_tokens", kills="metric-ref", passes=2)
def next_pass_begins_where_the_last_reply_ended(state: Any, request: Any) -> int:
    """A pass computes again what one in flight computes."""
    return int(request.computed_tokens)


@bug(validation, "check_follows", passes=2)
def a_later_pass_may_end_first(state: Any, flight: Any) -> None:
    """A reply to a pass is taken while an earlier one of the request is in flight."""


@bug(transfers, "orphan_flights", passes=2)
def first_pass_takes_over_the_locks(state: Any, request: Any) -> bool:
    """The locks of a request that is gone end with its first pass, and others still read."""
    load = state.flights.get(request.load)
    handed_over = _orphan_flights(state, request)
    if handed_over:
        first, last = (state.flights[request.passes[at]] for at in (0, -1))
        last.receipt, first.receipt = None, request.receipt
        if load is not None:
            load.read_by = first.id
    return handed_over


@bug(transfers, "orphan_flights", passes=4, faults=("fail",))
def only_the_last_pass_loses_its_request(state: Any, request: Any) -> bool:
    """After a request was aborted or failed, the reply to an earlier pass goes on with it."""
    handed_over = _orphan_flights(state, request)
    for one in request.passes[:-1]:
        state.flights[one].request = request.id
    return handed_over


@bug(admission, "prefill_done", passes=2, faults=("fail",))
def failed_pass_is_forgotten_if_another_follows(state: Any, event: Any) -> None:
    """Of the passes of a request, only the last one in flight is asked whether it failed."""
    _prefill_done(state, event._replace(ok=event.ok or _is_followed(state, event.flight)))


def _is_followed(state: Any, flight: Any) -> bool:
    return any(flight in one.passes[:-1] for one in state.requests.values())


@bug(DeviceHand, "_launch", passes=2, executor="device")
def passes_alternate_between_two_streams(self: Any, batch: Any) -> None:
    """Every other pass is on a second stream, and does not wait for the one before it."""
    forward = self.rig.forward
    (first,) = stages = forward._stages
    if batch[0][0].flight % 2:
        forward._stages = [first._replace(stream=self.rig.shadow.stream(f"{COMPUTE} 2"))]
    _launch(self, batch)
    forward._stages = stages
