"""Bugs in `refusals`: the reason that a refused request is told."""

from __future__ import annotations

from typing import Any

from hicache.core import admission, refusals
from hicache.core.actions import NO_REQUEST
from hicache.core.storage.flights import oldest
from hicache.core.types import Tier

from .base import Patch, bug

_abort = admission.abort
_reply_that_frees = refusals._reply_that_frees
_refuse = refusals.refuse
_refuse_room = refusals.refuse_room


@bug(faults=("abort while writing back",))
def abort_of_waiter_ends_write_back(patch: Patch) -> None:
    """Aborting a request that waits for a write-back makes the write-back count as done."""
    waiting: set[tuple[int, int]] = set()

    def noted(state: Any, request: int, reason: str, *rest: Any, **more: Any) -> None:
        _refuse(state, request, reason, *rest, **more)  # type: ignore[arg-type]
        if reason == "writing_back":
            waiting.add((id(state), request))

    def called_off(state: Any, event: Any) -> None:
        _abort(state, event)
        if (id(state), event.request) in waiting:
            state.writing_back = [0] * len(state.writing_back)

    patch(refusals, "refuse", noted)
    patch(admission, "abort", called_off)


@bug(refusals, "refuse")
def refusal_names_nobody_to_retract(
    state: Any,
    request: int,
    reason: Any,
    needed: int,
    available: int,
    preempt: int = NO_REQUEST,
    component: int = 0,
) -> None:
    """A refusal of a running request names nobody to retract, so all requests wait for ever."""
    _refuse(state, request, reason, needed, available, NO_REQUEST, component)


@bug(refusals, "refuse_room", kills="spec")
def full_pool_is_reported_as_writing_back(
    state: Any, request: int, component: int, needed: int, preempt: bool = False
) -> None:
    """A refusal says that pages are being written back, although none are."""
    room = state.pools[Tier.DEVICE][component].available
    refusals.refuse(state, request, "writing_back", needed, room, NO_REQUEST, component)


@bug(refusals, "refuse_room", kills="spec")
def oldest_request_is_retracted_first(state: Any, *rest: Any, **more: Any) -> None:
    """Where pages are short, the oldest request is named to be retracted, not the latest."""
    _refuse_room(state, *rest, **more)
    item = state.out[-1]
    if item.preempt != NO_REQUEST:
        state.out[-1] = item._replace(preempt=next(iter(state.running)))


@bug(refusals, "_reply_that_frees", kills="spec")
def refusals_wait_for_a_store(state: Any, component: int, needed: int) -> int:
    """A request that lacks device pages is told to wait for a store."""
    return _reply_that_frees(state, component, needed) or oldest(state)
