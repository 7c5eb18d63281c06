"""Checks of the values in an event, and refusals.

A check of an id, number or key that fails raises CallerError before anything has changed. A refusal
is an outcome: it says why pages are short, and what will change the answer (see `Refused`).
"""

from .actions import NO_REQUEST, RefusalReason, Refused
from .errors import CallerError
from .node import BACKUP, LOAD, Node, Request
from .state import State
from .types import BACKBONE, DEVICE, Key, PageState, RequestId, TransferId


def check_integer(name: str, value: object) -> None:
    """Raises CallerError for a value that is not a Python int, such as a numpy integer."""
    if not isinstance(value, int):
        raise CallerError(f"{name}: expected a whole number, an int, found {value!r}")


def known(state: State, request_id: RequestId) -> Request:
    """The request with this id, waiting or admitted. Raises CallerError if there is none."""
    request = state.requests.get(request_id) if isinstance(request_id, int) else None
    if request is None:
        raise CallerError(f"request {request_id}: expected a live request, found none")
    return request


def waiting(state: State, request_id: RequestId) -> Request:
    """The waiting request with this id. Raises CallerError if there is none."""
    request = state.requests.get(request_id) if isinstance(request_id, int) else None
    if request is None or request.admitted:
        text = "none" if request is None else "an admitted one"
        raise CallerError(f"request {request_id}: expected a waiting request, found {text}")
    return request


def idle(state: State, request_id: RequestId) -> Request:
    """The admitted request with this id, if no pass of it is in flight. Raises CallerError
    otherwise."""
    request = state.running.get(request_id) if isinstance(request_id, int) else None
    if request is None or request.passes:
        text = "none" if request is None else "one whose prefill is in flight"
        raise CallerError(f"request {request_id}: expected an idle admitted request, found {text}")
    return request


def continuing(state: State, request_id: RequestId) -> Request:
    """The admitted request with this id, if one more pass of it may begin. Raises CallerError
    otherwise."""
    request = state.running.get(request_id) if isinstance(request_id, int) else None
    most = state.config.passes
    if request is None or most == 1:
        return idle(state, request_id)
    if len(request.passes) >= most:
        raise CallerError(
            f"request {request_id}: expected fewer than {most} passes in flight, found {most}; "
            "continue it when one of them has ended"
        )
    return request


def check_chunk(chunk: int) -> None:
    """Raises CallerError for a chunk of less than one token."""
    if not isinstance(chunk, int) or chunk < 1:
        check_integer("chunk", chunk)
        raise CallerError(f"chunk: expected at least 1 token, found {chunk}")


def check_key(key: Key) -> None:
    """Raises CallerError for a value that is not a Key of whole rows."""
    if not isinstance(key, Key) or not isinstance(key.raw, bytes):
        raise CallerError(f"key: expected a Key of bytes, found {key!r}")
    stride = key.stride
    if not isinstance(stride, int) or stride < 1 or stride % 8:
        check_integer("stride of the key", stride)
        raise CallerError(f"key: expected rows of whole 8-byte words, found {stride} bytes")
    _check_rows(key.raw, stride)
    if key.namespace != "" and not _is_text(key.namespace):
        raise CallerError(f"namespace: expected text that UTF-8 can hold, found {key.namespace!r}")


def check_prompt(state: State, key: Key, length: int, match_pages: int) -> None:
    """Raises CallerError for a prompt that cannot be accepted. The first key that an empty core
    gets sets the row length of all later keys."""
    if not isinstance(length, int) or length < 1:
        check_integer("length", length)
        raise CallerError(f"length: expected at least 1 token, found {length}")
    check_key(key)
    check_stride(state, key)
    most, pages = -(-length // state.config.page_size), len(key.raw) // key.stride
    if not isinstance(match_pages, int) or pages > most or not 0 <= match_pages <= most:
        check_integer("match_pages", match_pages)
        raise CallerError(
            f"key: expected at most {most} pages for {length} tokens, "
            f"found {pages} with match_pages {match_pages}"
        )


def check_stride(state: State, key: Key) -> None:
    """Raises CallerError for rows of another length than those of the keys that are in use."""
    in_use = state.requests or state.root.children or state.pins
    if in_use and key.stride != state.stride:
        raise CallerError(
            f"key: expected rows of {state.stride} bytes like every key before, "
            f"found {key.stride}; one core takes one page size and one kind of key"
        )


def check_committed(state: State, request: Request, key: Key, length: int) -> None:
    """Raises CallerError if the request cannot have computed these tokens."""
    check_integer("length", length)
    if not isinstance(key, Key) or not isinstance(key.raw, bytes):
        raise CallerError(f"key: expected a Key of bytes, found {key!r}")
    prompt = request.key
    if key.stride != prompt.stride or key.namespace != prompt.namespace:
        raise CallerError(f"request {request.id}: its key no longer starts with its prompt")
    _check_rows(key.raw, prompt.stride)
    table_tokens = len(request.tables[BACKBONE]) * state.config.page_size
    most, pages = -(-length // state.config.page_size), len(key.raw) // key.stride
    if request.computed_tokens < request.length and length > request.computed_tokens:
        raise CallerError(
            f"request {request.id}: expected at most the {request.computed_tokens} tokens that its "
            f"prefill has computed, found {length}"
        )
    if not request.shared_pages <= pages <= most or length > table_tokens:
        raise CallerError(
            f"request {request.id}: expected {request.shared_pages} to {most} committed pages and "
            f"at most {table_tokens} tokens, found {pages} pages and {length} tokens"
        )
    shared = request.shared_pages * prompt.stride
    whole_prompt = shared == len(prompt.raw)
    if not key.raw.startswith(prompt.raw if whole_prompt else prompt.raw[:shared]):
        raise CallerError(f"request {request.id}: its key no longer starts with its prompt")


def _check_rows(raw: bytes, stride: int) -> None:
    if len(raw) % stride:
        raise CallerError(
            f"key: expected rows of {stride} bytes, found {len(raw)} bytes, which are no whole "
            "rows; leave the last page out until it is full"
        )


def _is_text(namespace: object) -> bool:
    if not isinstance(namespace, str):
        return False
    try:
        namespace.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse(
    state: State,
    request: RequestId,
    reason: RefusalReason,
    needed: int,
    available: int,
    retract: RequestId = NO_REQUEST,
    component: int = BACKBONE,
    after: TransferId = 0,
) -> None:
    name = state.config.components[component]
    state.out.append(Refused(request, reason, needed, available, retract, name, after))


def refuse_room(
    state: State, request: RequestId, component: int, needed: int, retract: bool = False
) -> None:
    """Refuse for lack of pages. Names the reply that frees enough of them. If there is none, and
    with `retract`, names the request to retract."""
    available = state.pools[DEVICE][component].available
    after = _reply_that_frees(state, component, needed)
    reason: RefusalReason = "writing_back" if after else "no_pages"
    victim = next(reversed(state.running)) if retract and not after else NO_REQUEST
    refuse(state, request, reason, needed, available, victim, component, after)


def _reply_that_frees(state: State, component: int, needed: int) -> TransferId:
    """The transfer after whose reply `needed` pages are available, with the replies before it; 0 if
    there is none.

    If enough pages are available already, eviction is waiting: for pages that it writes back, or
    for a copy in flight of a colder page.
    """
    pool = state.pools[DEVICE][component]
    if pool.available < needed:
        free_pages = pool.available
        for reply, pages in _coming(state, component):
            free_pages += pages
            if free_pages >= needed:
                return reply
        return 0
    free_pages, last = pool.free, 0
    for transfer in state.transfers.values():
        if transfer.evicts and transfer.frees[component]:
            free_pages, last = free_pages + transfer.frees[component], transfer.id
            if free_pages >= needed:
                break
    if last:
        return last
    copies = (reply for reply, _ in _coming(state, component))
    return next((copy for copy in copies if state.transfers[copy].kind is BACKUP), 0)


def _coming(state: State, component: int) -> list[tuple[TransferId, int]]:
    """(transfer, device pages that its reply frees or unlocks), in the order in which the transfers
    began. A page that several transfers lock or use counts for the last of them."""
    ends = {
        item.receipt.id: item.id for item in state.transfers.values() if item.receipt is not None
    }
    coming = dict.fromkeys(state.transfers, 0)
    if state.pools[DEVICE][component].counts[PageState.RETIRING]:
        for user in _last_users(state, component).values():
            coming[user] += 1
    locked: dict[int, Node] = {}
    for transfer in state.transfers.values():
        if transfer.kind is LOAD and transfer.request == NO_REQUEST:
            segments = (segment for segment in transfer.segments if segment.component == component)
            last = transfer.read_by if transfer.read_by in coming else transfer.id
            coming[last] += sum(len(segment.target) for segment in segments)
        if transfer.receipt is not None:
            entries = transfer.receipt.locked[component]
            locked.update((node.id, node) for node, tier in entries if tier == DEVICE)
    for node in locked.values():
        pages, holders = node.pages[DEVICE][component], node.locks[DEVICE][component]
        if pages is not None and holders.keys() <= ends.keys():
            coming[max(ends[holder] for holder in holders)] += len(pages)
    return [(transfer, pages) for transfer, pages in coming.items() if pages]


def _last_users(state: State, component: int) -> dict[int, TransferId]:
    """For each device page that was given back on loan, the last transfer that uses it."""
    pages = state.pools[DEVICE][component].state
    last: dict[int, TransferId] = {}
    for transfer in state.transfers.values():
        on_loan = transfer.on_loan[component : component + 1]
        if transfer.kind is BACKUP:
            on_loan = [item.source for item in transfer.segments if item.component == component]
        for part in on_loan:
            retiring = part[pages[part] == PageState.RETIRING]
            last.update(dict.fromkeys(retiring.tolist(), transfer.id))
    return last
