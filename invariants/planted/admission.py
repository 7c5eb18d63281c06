"""Bugs in `admission`, `validation` and `refusals`: requests arrive, are admitted, grow and
end, and what a refused one is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hicache.core import admission, refusals, validation
from hicache.core.actions import NO_REQUEST, Cached
from hicache.core.radix import locks
from hicache.core.requests import windows
from hicache.core.storage.flights import let_go, oldest
from hicache.core.types import Tier, frozen

from .base import Patch, bug

_begin_prefill = admission._begin_prefill
_extend = admission._extend
_withdraw = admission._withdraw
_abort = admission.abort
_admit = admission.admit
_prefill_done = admission.prefill_done
_retract = admission.retract
_want_pages = admission.want_pages
_waiting = validation.waiting
_reply_that_frees = refusals._reply_that_frees
_refuse = refusals.refuse
_refuse_room = refusals.refuse_room


def _blind_to_its_pass(
    handler: Callable[[Any, Any], None],
) -> Callable[[Any, Any], None]:
    """Returns the handler with the request's pass hidden while it runs."""

    def blindly(state: Any, event: Any) -> None:
        request = state.running.get(event.request)
        flight = request.prefill if request is not None else 0
        if flight:
            request.prefill = 0
        try:
            handler(state, event)
        finally:
            if flight and not request.prefill:
                request.prefill = flight

    return blindly


@bug(admission, "admit", kills="spec")
def admission_does_not_wait_for_a_prefetch(state: Any, event: Any) -> None:
    """A request is admitted during its prefetch although the policy waits."""
    request = state.requests.get(event.request)
    if request is not None and request.prefetch:
        let_go(state, request, "late")
    _admit(state, event)


@bug(faults=("chunk in flight",))
def next_chunk_starts_during_a_pass(patch: Patch) -> None:
    """The next chunk of a prompt starts while a pass of the request runs."""
    patch(admission, "continue_prefill", _blind_to_its_pass(admission.continue_prefill))


@bug(admission, "prefill_done", kills="bytes", components=("full",))
def chunk_table_is_sorted(state: Any, event: Any) -> None:
    """The table in the answer to a chunk that is not the last names its pages in ascending
    order."""
    _prefill_done(state, event)
    for at, item in enumerate(state.out):
        request = state.requests.get(getattr(item, "request", -1))
        if (
            type(item) is Cached
            and request is not None
            and request.computed_tokens < request.length
        ):
            state.out[at] = item._replace(
                tables=(frozen(np.sort(item.tables[0])), *item.tables[1:])
            )


@bug(
    admission,
    "prefill_done",
    rows=("C16",),
    faults=("pass error", "pass error after its load", "fail", "submit error", "late error"),
)
def failed_prefill_is_published(state: Any, event: Any) -> None:
    """The pages of a pass that failed are put into the tree."""
    _prefill_done(state, event._replace(ok=True))


@bug(
    admission,
    "prefill_done",
    faults=("overtaken load", "burst", "reordered", "very late", "swizzled clog, passes first"),
)
def load_stays_open_after_its_pass(state: Any, event: Any) -> None:
    """A load stays in flight when the pass that read it is done first."""
    flight = state.flights.get(event.flight)
    request = state.requests.get(flight.request) if flight is not None else None
    if request is None or not request.load or not event.ok:
        _prefill_done(state, event)
        return
    load, request.load = request.load, 0
    _prefill_done(state, event)
    if request.admitted:
        request.load = load


@bug(admission, "prefill_done", faults=("abort, then it fails",))
def orphaned_failed_pass_is_not_cleaned_up(state: Any, event: Any) -> None:
    """A pass that fails after its request has gone is never cleaned up."""
    flight = state.flights.get(event.flight)
    if event.ok or flight is None or flight.request in state.requests:
        _prefill_done(state, event)


@bug(admission, "want_pages", faults=("growth in flight",))
def growth_granted_during_a_pass(state: Any, event: Any) -> None:
    """A request is granted pages while a pass of it runs."""
    request = state.running.get(event.request)
    flight = request.prefill if request is not None else 0
    if not flight:
        _want_pages(state, event)
        return
    computed, request.prefill, request.computed_tokens = request.computed_tokens, 0, request.length
    try:
        _want_pages(state, event)
    finally:
        request.prefill, request.computed_tokens = flight, computed


@bug(faults=("finish in flight",))
def request_finishes_during_its_pass(patch: Patch) -> None:
    """A request is finished while a pass of it runs."""
    patch(admission, "finish", _blind_to_its_pass(admission.finish))


@bug(faults=("retract mid-prefill",))
def request_retracted_during_its_pass(patch: Patch) -> None:
    """A request is retracted while a pass of it runs."""
    patch(admission, "retract", _blind_to_its_pass(admission.retract))


@bug(admission, "retract", kills="spec", eviction="priority")
def retracted_requests_lose_their_priority(state: Any, event: Any) -> None:
    """A request that was retracted waits again without its priority."""
    _retract(state, event)
    state.requests[event.request].priority = 0


@bug(admission, "abort", kills="lock-bal", faults=("abort after the reply",))
def abort_of_idle_request_keeps_its_locks(state: Any, event: Any) -> None:
    """Aborting a request that no pass works for leaves its path locked."""
    request = state.requests.get(event.request)
    if request is not None and request.admitted and not request.prefill:
        request.receipt = None
    _abort(state, event)


@bug(admission, "_report_match", kills="spec")
def arrival_is_not_answered(state: Any, request: Any) -> None:
    """Nobody is told what an arriving prompt would hit."""


@bug(admission, "_begin_prefill", kills="spec", components=("full", "swa"))
def passes_end_before_their_pages(state: Any, request: Any, end: int) -> None:
    """A pass that takes the last page of a window pool ends a page before it."""
    size = state.config.page_size
    empty = any(not state.pools[0][index].available for index in state.bounded)
    if empty and request.computed_tokens < end - size and end < request.length:
        end -= size
    _begin_prefill(state, request, end)


@bug(admission, "_begin_prefill", rows=("C4",), kills="read-after-arrive")
def prefill_skips_its_load(state: Any, request: Any, end: int) -> None:
    """A prefill is not told of the load that it must wait for."""
    _begin_prefill(state, request, end)
    state.out[-1] = state.out[-1]._replace(after=())


@bug(admission, "_begin_prefill", rows=("F7",), kills="spec")
def window_freed_during_its_pass(state: Any, request: Any, end: int) -> None:
    """The window that a pass reads is freed for the end of that pass."""
    windows.release_behind(state, request, end)
    _begin_prefill(state, request, end)


@bug(admission, "_begin_prefill", rows=("J10",))
def window_table_sized_by_reused_prefix(state: Any, request: Any, end: int) -> None:
    """The table of a windowed component has entries for the reused prefix only."""
    for index, component in enumerate(state.components):
        if index and component.positional:
            request.tables[index] = request.tables[index][: request.filled_pages]
    _begin_prefill(state, request, end)


@bug(admission, "_is_too_large", rows=("J6",), kills="spec")
def request_of_pool_size_is_refused(state: Any, request: int, total: int) -> bool:
    """A request that needs exactly the whole pool is refused for ever."""
    capacity = state.pools[Tier.DEVICE][0].capacity
    if total >= capacity:
        refusals.refuse(state, request, "too_large", total, capacity)
    return bool(total >= capacity)


@bug(admission, "_extend", faults=("step ahead rejected",))
def growth_allocates_twice(state: Any, request: Any, total: int) -> None:
    """A granted growth allocates its pages twice, and the first ones leak."""
    tables = list(request.tables)
    _extend(state, request, total)
    lost = len(request.tables[0]) - len(tables[0])
    if state.pools[0][0].free >= lost and len(tables) == 1:
        request.tables = tables
        _extend(state, request, total)


@bug(admission, "_extend", kills="spec")
def growth_grants_one_page_too_few(state: Any, request: Any, total: int) -> None:
    """A growth that needs a new page is granted with one page too few."""
    _extend(state, request, max(len(request.tables[0]), total - 1))


@bug(admission, "_withdraw", rows=("M4",), kills="own-d")
def checkpoint_slots_leak_on_abort(state: Any, request: Any) -> None:
    """An aborted request frees its working state, but not its two checkpoint slots."""
    for index, component in enumerate(state.components):
        if not component.positional and request.admitted and not request.prefill:
            slots = request.tables[index].copy()
            slots[1:] = -1
            slots.flags.writeable = False
            request.tables[index] = slots
    _withdraw(state, request)


@bug(admission, "_withdraw", rows=("A13",), kills="own-d")
def release_frees_the_shared_prefix(state: Any, request: Any) -> None:
    """A request that ends also frees the pages of its shared prefix."""
    request.shared_pages = 0
    _withdraw(state, request)


@bug(admission, "_withdraw", rows=("B11",))
def waiting_request_releases_a_lock(state: Any, request: Any) -> None:
    """A request that was never admitted releases a lock when it ends."""
    admitted = request.admitted
    _withdraw(state, request)
    if not admitted:
        locks.release(state, request.receipt)


@bug(validation, "waiting", faults=("admitted twice",))
def admitted_request_can_be_admitted_again(state: Any, request_id: int) -> Any:
    """A request that is admitted may be admitted again."""
    return state.requests.get(request_id) or _waiting(state, request_id)


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
