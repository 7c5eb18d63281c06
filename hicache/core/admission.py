"""The life of a request: arrive, match, be admitted, continue prefill, grow, finish, be retracted.

One handler for each event of the engine, and the one for the end of a prefill. Each first checks
its event (see `refusals`). `placement` plans an admission, `insertion` changes the tree.
"""

from .actions import Cached, Granted, Matched, Prefill, Released, Restarted
from .errors import CallerError, CoreBug
from .events import (
    Aborted,
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Finished,
    MatchWanted,
    PagesWanted,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
)
from .eviction import consider, make_device_room
from .insertion import insert
from .node import PREFILL, Node, Request
from .pins import hold_pinned, pinned_beside
from .placement import begun_tokens, land, lend_own, orphan_transfers, place
from .prefetch import begin_prefetch, leave, release_prefetch
from .refusals import (
    check_chunk,
    check_committed,
    check_integer,
    check_prompt,
    continuing,
    idle,
    known,
    refuse,
    refuse_room,
    waiting,
)
from .requests import (
    boundaries_at_end,
    boundaries_of_pass,
    choose_checkpoint_slots,
    extend,
    fill,
    note_decoded,
    own_pages,
    paged_tables,
    pages_of,
    reachable_end,
    refill_checkpoint_slots,
    release_behind,
    state_slots,
)
from .state import State
from .stores import store_used
from .transfers import close_transfer, open_transfer, release, transfer_of
from .tree import probe
from .types import BACKBONE, DEVICE, MOST_PRIORITY, Key


def arrive(state: State, event: Arrived) -> None:
    check_integer("request", event.request)
    if event.request < 0 or event.request in state.requests:
        raise CallerError(f"request {event.request}: expected a new id from 0 up")
    check_prompt(state, event.key, event.length, event.match_pages)
    check_integer("priority", event.priority)
    if abs(event.priority) > MOST_PRIORITY:
        raise CallerError(
            f"priority: expected -{MOST_PRIORITY} to {MOST_PRIORITY}, found {event.priority}"
        )
    state.stride = event.key.stride
    state.arrivals += 1
    request = Request(
        event.request, event.key, event.length, event.match_pages, event.priority, state.arrivals
    )
    state.requests[request.id] = request
    state.touched_requests[request.id] = None
    _report_match(state, request)
    if state.attached:
        begin_prefetch(state, request)


def want_match(state: State, event: MatchWanted) -> None:
    _report_match(state, waiting(state, event.request))


def admit(state: State, event: AdmitWanted) -> None:
    request = waiting(state, event.request)
    check_chunk(event.chunk)
    if _is_too_large(state, request, pages_of(state, request.length)):
        return
    if request.prefetch:
        if state.prefetching.waits:
            refuse(state, request.id, "fetching", 0, 0, after=request.prefetch)
            return
        release_prefetch(state, request, "late")
    end = place(state, request, event.chunk)
    if request.admitted:
        _begin_prefill(state, request, end)


def continue_prefill(state: State, event: ContinueWanted) -> None:
    request = continuing(state, event.request)
    start = begun_tokens(state, request)
    if start >= request.length:
        raise CallerError(f"request {request.id}: its prompt of {request.length} is computed")
    check_chunk(event.chunk)
    end, alone = min(start + event.chunk, request.length), not request.passes
    release_behind(state, request, request.computed_tokens)
    if any(reachable_end(state, request, number, end) < end for number in state.bounded):
        release_behind(state, request, request.computed_tokens, exactly=True)
    state.touched_requests[request.id] = None
    for index in state.bounded:
        end = reachable_end(state, request, index, end)
        if end <= start:
            refuse_room(state, request.id, index, 1, retract=alone)
            return
    for index in state.bounded:
        count = max(0, pages_of(state, end) - request.filled_pages)
        if not make_device_room(state, index, count):
            refuse_room(state, request.id, index, count, retract=alone)
            return
    fill(state, request, pages_of(state, end))
    _begin_prefill(state, request, end)


def prefill_done(state: State, event: PrefillDone) -> None:
    transfer = transfer_of(state, event.transfer, PREFILL)
    if transfer.follows in state.transfers:
        raise CallerError(
            f"transfer {transfer.id}: expected the reply to transfer {transfer.follows} first; the "
            "passes of a request end in the order in which they began"
        )
    request = state.requests.get(transfer.request)
    if request is not None and event.ok and request.load:
        land(state, state.transfers[request.load])
    close_transfer(state, transfer)
    if request is None:
        return
    state.touched_requests[request.id] = None
    request.passes.remove(transfer.id)
    if not event.ok:
        restart(state, request)
        return
    boundaries = boundaries_of_pass(state, request, request.computed_tokens, transfer.end_token)
    if not request.computed_tokens <= transfer.end_token <= request.length:
        raise CoreBug(f"{transfer} ends at {transfer.end_token} of {request.length} tokens")
    request.computed_tokens = transfer.end_token
    for index, depth, slot in transfer.checkpoints:  # the slots have these states now
        request.checkpoint_tokens[index][slot - 1] = depth
    path = insert(state, request, request.key, boundaries, leaving=False)
    release_behind(state, request, request.computed_tokens)
    tables, slots = paged_tables(state, request), state_slots(state, request)
    state.out.append(Cached(request.id, request.shared_pages, tables, slots))
    consider(state, path)
    store_used(state, path)
    hold_pinned(state, DEVICE)


def want_pages(state: State, event: PagesWanted) -> None:
    request = idle(state, event.request)
    check_integer("length", event.length)
    check_integer("computed_tokens", event.computed_tokens)
    total = pages_of(state, event.length)
    if request.computed_tokens < request.length:
        raise CallerError(
            f"request {request.id}: expected growth after the whole prompt is computed, found "
            f"{request.computed_tokens} of its {request.length} tokens"
        )
    table_tokens = len(request.tables[BACKBONE]) * state.config.page_size
    if not 0 <= event.computed_tokens <= table_tokens:
        raise CallerError(
            f"request {request.id}: expected 0 to {table_tokens} computed tokens, found "
            f"{event.computed_tokens}"
        )
    if _is_too_large(state, request, total):
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
            refuse_room(state, request.id, lacking, short, retract=True)
            return
        _extend(state, request, total)
    refill_checkpoint_slots(state, request, table_tokens)
    state.touched_requests[request.id] = None
    state.out.append(Granted(request.id, paged_tables(state, request), state_slots(state, request)))


def finish(state: State, event: Finished) -> None:
    request = idle(state, event.request)
    check_committed(state, request, event.key, event.length)
    path = _commit_and_release(state, request, event.key, event.length)
    del state.requests[request.id]
    store_used(state, path)
    hold_pinned(state, DEVICE)


def retract(state: State, event: Retracted) -> None:
    request = idle(state, event.request)
    check_prompt(state, event.key, event.length, event.match_pages)
    check_integer("committed_tokens", event.committed_tokens)
    committed = event.key.first(event.committed_tokens // state.config.page_size)
    check_committed(state, request, committed, event.committed_tokens)
    path = _commit_and_release(state, request, committed, event.committed_tokens)
    _wait_again(state, request, event.key, event.length, event.match_pages)
    store_used(state, path)
    hold_pinned(state, DEVICE)


def abort(state: State, event: Aborted) -> None:
    request = known(state, event.request)
    if request.prefetch:
        leave(state, request)
    _withdraw(state, request)
    del state.requests[request.id]
    state.out.append(Released(request.id))


def reach_prefetch_limit(state: State, event: PrefetchLimitReached) -> None:
    request = waiting(state, event.request)
    if request.prefetch:
        release_prefetch(state, request, "late")


def restart(state: State, request: Request) -> None:
    """The load or prefill of the request failed. Discard what it has computed and let it wait."""
    _withdraw(state, request)
    _wait_again(state, request, request.key, request.length, request.match_pages)
    state.requests[request.id].may_load = False
    state.out.append(Restarted(request.id))


def _wait_again(state: State, request: Request, key: Key, length: int, match_pages: int) -> None:
    """Replace the record of a request that has given back its pages and locks."""
    state.requests[request.id] = Request(
        request.id,
        key,
        length,
        match_pages,
        request.priority,
        request.arrived,
        request.may_load,
    )


def _report_match(state: State, request: Request) -> None:
    device, host, depths, request.known_node = probe(
        state, request.key, request.match_pages, request.known_node
    )
    state.out.append(Matched(request.id, device, host, depths))


def _begin_prefill(state: State, request: Request, end: int) -> None:
    """Queue the next pass over the prompt, up to token `end`."""
    start = begun_tokens(state, request)
    if len(request.passes) >= state.config.passes or not start <= end <= request.length:
        raise CoreBug(
            f"request {request.id}: a pass over {start}..{end} beside transfers {request.passes}"
        )
    transfer = open_transfer(state, PREFILL, request.id)
    transfer.end_token, transfer.follows = end, request.passes[-1] if request.passes else 0
    choose_checkpoint_slots(state, request, transfer, start)
    lend_own(state, request, transfer)
    request.passes.append(transfer.id)
    after = (request.load,) if request.load else ()
    tables, slots = paged_tables(state, request), state_slots(state, request, transfer)
    last = end == request.length
    state.out.append(Prefill(transfer.id, request.id, start, end, tables, after, last, slots))
    request.sources = [-1] * len(state.components)


def _is_too_large(state: State, request: Request, total: int) -> bool:
    most = state.pools[DEVICE][BACKBONE].capacity
    if state.pins:
        most -= pinned_beside(state, request)
    if total > most:
        refuse(state, request.id, "too_large", total, most)
    return total > most


def _lacking(state: State, count: int) -> int:
    """The first positional component that cannot get `count` more pages; -1 if all can."""
    for index in (BACKBONE, *state.bounded):
        if count > state.pools[DEVICE][index].available:
            return index
    return -1


def _extend(state: State, request: Request, total: int) -> None:
    """Take pages for the positions up to `total`, for every positional component."""
    have = len(request.tables[BACKBONE])
    for index, component in enumerate(state.components):
        if component.positional:
            if len(request.tables[index]) != have:
                raise CoreBug(f"request {request.id}: tables of {index} and 0 differ in length")
            pages = state.pools[DEVICE][index].take(total - have, request.id)
            extend(request, index, pages)
    request.filled_pages = total
    state.touched_requests[request.id] = None


def _commit_and_release(state: State, request: Request, key: Key, length: int) -> list[Node]:
    """Insert the committed pages into the tree, free the others, and release the locks. Returns the
    path of the committed pages."""
    note_decoded(state, request, length)
    boundaries = boundaries_at_end(state, request, key, length)
    path = insert(state, request, key, boundaries, leaving=True)
    consider(state, path)
    _withdraw(state, request)
    state.out.append(Released(request.id))
    return path


def _withdraw(state: State, request: Request) -> None:
    """Free the request's own pages and release its locks. Its transfers go on without it."""
    state.touched_requests[request.id] = None
    if not request.admitted:
        return
    if state.running.pop(request.id, None) is not request:
        raise CoreBug(f"request {request.id} is admitted and does not run")
    handed_over = orphan_transfers(state, request)
    for index in range(len(state.components)):
        state.pools[DEVICE][index].give_back(own_pages(state, request, index))
    if request.receipt is not None and not handed_over:
        release(state, request.receipt)
