"""A request's way in and out: arrive, match, be admitted, continue, grow, leave.

Lives here: one handler per event of the scheduler, and what it checks before anything changes. How
a request is admitted is in `placement`, what it leaves behind in `insertion`.
"""

from __future__ import annotations

import numpy as np

from .actions import Cached, Granted, Matched, Prefill, Released, Restarted
from .backup import consider
from .checkpoints import (
    boundaries_at_end,
    boundaries_of_pass,
    choose_checkpoint_slots,
    note_checkpoints,
    note_decoded,
    paged_tables,
    refill_checkpoint_slots,
    state_slots,
)
from .errors import CallerError
from .events import (
    Aborted,
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Finished,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from .insertion import insert
from .placement import place, refuse, refuse_room
from .radix.locks import release
from .radix.matching import probe
from .radix.node import Request
from .radix.tree import BACKBONE
from .reclaim import make_device_room
from .state import State
from .transfers import (
    close_flight,
    flight_of,
    land,
    lend_own,
    open_flight,
    orphan_flights,
    own_pages,
)
from .types import MOST_PRIORITY, Key, RequestId, Tier, frozen
from .windows import fill, pages_of, reachable_end, release_behind


def arrive(state: State, event: Arrived) -> None:
    if event.request in state.requests or event.request < 0:
        raise CallerError(f"request {event.request}: expected a new id from 0 up")
    _check_prompt(state, event.key, event.length, event.match_pages)
    if abs(event.priority) > MOST_PRIORITY:
        raise CallerError(
            f"priority: expected -{MOST_PRIORITY} to {MOST_PRIORITY}, found {event.priority}"
        )
    state.stride = event.key.stride
    request = Request(
        event.request, event.key, event.length, event.match_pages, priority=event.priority
    )
    state.requests[request.id] = request
    state.touched_requests[request.id] = None
    _report_match(state, request)


def want_match(state: State, event: MatchWanted) -> None:
    _report_match(state, _waiting(state, event.request))


def admit(state: State, event: AdmitWanted) -> None:
    request = _waiting(state, event.request)
    if event.chunk < 1:
        raise CallerError(f"chunk: expected at least 1 token, found {event.chunk}")
    if _is_too_large(state, request.id, pages_of(state, request.length)):
        return
    end = place(state, request, event.chunk)
    if request.admitted:
        _begin_prefill(state, request, end)


def continue_prefill(state: State, event: ContinueWanted) -> None:
    request = _idle(state, event.request)
    if request.computed_tokens >= request.length:
        raise CallerError(f"request {request.id}: its prompt of {request.length} is computed")
    if event.chunk < 1:
        raise CallerError(f"chunk: expected at least 1 token, found {event.chunk}")
    start, end = request.computed_tokens, min(request.computed_tokens + event.chunk, request.length)
    short = any(reachable_end(state, request, one, start, end) < end for one in state.bounded)
    release_behind(state, request, start, exactly=short)
    state.touched_requests[request.id] = None
    for index in state.bounded:
        end = reachable_end(state, request, index, start, end)
        if end <= start:
            refuse_room(state, request.id, index, 1, preempt=True)
            return
    for index in state.bounded:
        count = max(0, pages_of(state, end) - request.filled_pages)
        if not make_device_room(state, index, count):
            refuse_room(state, request.id, index, count, preempt=True)
            return
    fill(state, request, pages_of(state, end))
    _begin_prefill(state, request, end)


def prefill_done(state: State, event: PrefillDone) -> None:
    flight = flight_of(state, event.flight, "prefill")
    request = state.requests.get(flight.request)
    if request is not None and event.ok and request.load:
        land(state, state.flights[request.load])
    close_flight(state, flight)
    if request is None:
        return
    state.touched_requests[request.id] = None
    request.prefill = 0
    if not event.ok:
        restart(state, request)
        return
    made = boundaries_of_pass(state, request, request.computed_tokens, flight.end_token)
    request.computed_tokens = flight.end_token
    note_checkpoints(request, flight)
    path = insert(state, request, request.key, made, last=False)
    release_behind(state, request, request.computed_tokens)
    state.out.append(
        Cached(
            request.id,
            request.shared_pages,
            request.tables[BACKBONE],
            paged_tables(state, request),
            state_slots(state, request),
        )
    )
    consider(state, path)


def want_pages(state: State, event: PagesWanted) -> None:
    request = _idle(state, event.request)
    total = pages_of(state, event.length)
    if request.computed_tokens < request.length:
        raise CallerError(
            f"request {request.id}: expected growth after the whole prompt is computed, found "
            f"{request.computed_tokens} of its {request.length} tokens"
        )
    room = len(request.tables[BACKBONE]) * state.config.page_size
    if not 0 <= event.computed_tokens <= room:
        raise CallerError(
            f"request {request.id}: expected 0 to {room} computed tokens, found "
            f"{event.computed_tokens}"
        )
    if _is_too_large(state, request.id, total):
        return
    computed = max(event.computed_tokens, request.computed_tokens) if event.computed_tokens else 0
    if computed:
        release_behind(state, request, computed)
        state.touched_requests[request.id] = None
    short = total - len(request.tables[BACKBONE])
    if short > 0:
        lacking = _lacking(state, short)
        if computed and lacking >= 0:
            release_behind(state, request, computed, exactly=True)
            lacking = _lacking(state, short)
        for index in (BACKBONE, *state.bounded):
            if lacking < 0 and not make_device_room(state, index, short):
                lacking = index
        if lacking >= 0:
            refuse_room(state, request.id, lacking, short, preempt=True)
            return
        _extend(state, request, total)
    refill_checkpoint_slots(state, request, room)
    state.touched_requests[request.id] = None
    state.out.append(
        Granted(
            request.id,
            request.tables[BACKBONE],
            paged_tables(state, request),
            state_slots(state, request),
        )
    )


def finish(state: State, event: Finished) -> None:
    request = _idle(state, event.request)
    _check_committed(state, request, event.key, event.length)
    _commit_and_release(state, request, event.key, event.length)
    del state.requests[request.id]


def retract(state: State, event: Retracted) -> None:
    request = _idle(state, event.request)
    _check_prompt(state, event.key, event.length, event.match_pages)
    committed = event.key.first(event.committed_tokens // state.config.page_size)
    _check_committed(state, request, committed, event.committed_tokens)
    _commit_and_release(state, request, committed, event.committed_tokens)
    state.requests[request.id] = Request(
        request.id,
        event.key,
        event.length,
        event.match_pages,
        may_load=request.may_load,
        priority=request.priority,
    )


def abort(state: State, event: Aborted) -> None:
    request = state.requests.get(event.request)
    if request is None:
        raise CallerError(f"request {event.request}: expected a live request, found none")
    _withdraw(state, request)
    del state.requests[request.id]
    state.out.append(Released(request.id))


def restart(state: State, request: Request) -> None:
    """Its load or prefill failed: what it has computed is not to be trusted. It waits again."""
    _withdraw(state, request)
    state.requests[request.id] = Request(
        request.id,
        request.key,
        request.length,
        request.match_pages,
        may_load=False,
        priority=request.priority,
    )
    state.out.append(Restarted(request.id))


def _report_match(state: State, request: Request) -> None:
    device, host, depths = probe(state, request.key, request.match_pages)
    state.out.append(Matched(request.id, device, host, depths))


def _begin_prefill(state: State, request: Request, end: int) -> None:
    """Queue the next chunk of the prompt."""
    flight = open_flight(state, "prefill", request)
    flight.end_token = end
    choose_checkpoint_slots(state, request, flight, request.computed_tokens)
    lend_own(state, request, flight)
    request.prefill = flight.id
    state.out.append(
        Prefill(
            flight.id,
            request.id,
            request.computed_tokens,
            end,
            request.tables[BACKBONE],
            (request.load,) if request.load else (),
            end == request.length,
            paged_tables(state, request),
            state_slots(state, request, flight),
        )
    )
    request.sources = [-1] * len(state.components)


def _is_too_large(state: State, request: RequestId, total: int) -> bool:
    capacity = state.pools[Tier.DEVICE][BACKBONE].capacity
    if total > capacity:
        refuse(state, request, "too_large", total, capacity)
    return total > capacity


def _lacking(state: State, count: int) -> int:
    """The first component by position that cannot have so many pages, -1 for none."""
    for index in (BACKBONE, *state.bounded):
        if count > state.pools[Tier.DEVICE][index].available:
            return index
    return -1


def _extend(state: State, request: Request, total: int) -> None:
    """Positions up to `total`, of every component that has a page for each."""
    have = len(request.tables[BACKBONE])
    for index, component in enumerate(state.components):
        if component.positional:
            fresh = state.pools[Tier.DEVICE][index].take(total - have, request.id)
            table = np.concatenate((request.tables[index], fresh))
            request.tables[index] = frozen(table)
    request.filled_pages = total
    state.touched_requests[request.id] = None


def _commit_and_release(state: State, request: Request, key: Key, length: int) -> None:
    """Committed pages enter the tree, the rest goes back, and the locks end."""
    note_decoded(state, request, length)
    made = boundaries_at_end(state, request, key, length)
    path = insert(state, request, key, made, last=True)
    consider(state, path)
    _withdraw(state, request)
    state.out.append(Released(request.id))


def _withdraw(state: State, request: Request) -> None:
    """The request holds nothing any more; what is in flight for it ends without it."""
    state.touched_requests[request.id] = None
    if not request.admitted:
        return
    del state.running[request.id]
    handed_over = orphan_flights(state, request)
    for index in range(len(state.components)):
        state.pools[Tier.DEVICE][index].give_back(own_pages(state, request, index))
    if request.receipt is not None and not handed_over:
        release(state, request.receipt)


def _check_prompt(state: State, key: Key, length: int, match_pages: int) -> None:
    if length < 1:
        raise CallerError(f"length: expected at least 1 token, found {length}")
    if key.stride < 1 or key.stride % 8:
        raise CallerError(f"key: expected rows of whole 8-byte words, found {key.stride} bytes")
    if not _is_text(key.namespace):
        raise CallerError(f"namespace: expected text that UTF-8 can hold, found {key.namespace!r}")
    if state.stride and key.stride != state.stride:
        raise CallerError(
            f"key: expected rows of {state.stride} bytes like every key before, "
            f"found {key.stride}; one core takes one page size and one kind of key"
        )
    most = -(-length // state.config.page_size)
    if key.pages > most or not 0 <= match_pages <= most:
        raise CallerError(
            f"key: expected at most {most} pages for {length} tokens, "
            f"found {key.pages} with match_pages {match_pages}"
        )


def _check_committed(state: State, request: Request, key: Key, length: int) -> None:
    room = len(request.tables[BACKBONE]) * state.config.page_size
    most = -(-length // state.config.page_size)
    if request.computed_tokens < request.length and length > request.computed_tokens:
        raise CallerError(
            f"request {request.id}: expected at most the {request.computed_tokens} tokens that its "
            f"prefill has computed, found {length}"
        )
    if not request.shared_pages <= key.pages <= most or length > room:
        raise CallerError(
            f"request {request.id}: expected {request.shared_pages} to {most} committed pages and "
            f"at most {room} tokens, found {key.pages} pages and {length} tokens"
        )
    known = request.key.first(request.shared_pages).raw
    same = (key.namespace, key.stride) == (request.key.namespace, request.key.stride)
    if not same or not key.raw.startswith(known):
        raise CallerError(f"request {request.id}: its key no longer starts with its prompt")


def _is_text(namespace: str) -> bool:
    try:
        namespace.encode()
    except UnicodeEncodeError:
        return False
    return True


def _waiting(state: State, request_id: RequestId) -> Request:
    request = state.requests.get(request_id)
    if request is None or request.admitted:
        found = "none" if request is None else "an admitted one"
        raise CallerError(f"request {request_id}: expected a waiting request, found {found}")
    return request


def _idle(state: State, request_id: RequestId) -> Request:
    request = state.running.get(request_id)
    if request is None or request.prefill:
        found = "none" if request is None else "one whose prefill is in flight"
        raise CallerError(f"request {request_id}: expected an idle admitted request, found {found}")
    return request
