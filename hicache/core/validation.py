"""Checks of the values in an event: ids, numbers and keys. A failed check raises CallerError.

A check changes nothing, so an event with a wrong value leaves the core as it was. Does not refuse
requests for lack of pages; see `refusals`.
"""

from __future__ import annotations

from .errors import CallerError
from .radix.node import Flight
from .requests.record import Request
from .state import State
from .types import BACKBONE, MOST_PRIORITY, Key, RequestId


def whole(name: str, value: object) -> None:
    """Raises CallerError for a value that is not a Python int, such as a numpy integer."""
    if not isinstance(value, int):
        raise CallerError(f"{name}: expected a whole number, an int, found {value!r}")


def check_new(state: State, request_id: RequestId) -> None:
    """Raises CallerError if the id is negative or in use."""
    whole("request", request_id)
    if request_id < 0 or request_id in state.requests:
        raise CallerError(f"request {request_id}: expected a new id from 0 up")


def check_priority(priority: int) -> None:
    """Raises CallerError for a priority outside the range that ranks can represent."""
    whole("priority", priority)
    if abs(priority) > MOST_PRIORITY:
        raise CallerError(
            f"priority: expected -{MOST_PRIORITY} to {MOST_PRIORITY}, found {priority}"
        )


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
        found = "none" if request is None else "an admitted one"
        raise CallerError(f"request {request_id}: expected a waiting request, found {found}")
    return request


def idle(state: State, request_id: RequestId) -> Request:
    """The admitted request with this id, if no pass of it is in flight. Raises CallerError
    otherwise."""
    request = state.running.get(request_id) if isinstance(request_id, int) else None
    if request is None or request.passes:
        found = "none" if request is None else "one whose prefill is in flight"
        raise CallerError(f"request {request_id}: expected an idle admitted request, found {found}")
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


def check_follows(state: State, flight: Flight) -> None:
    """Raises CallerError if a pass of the same request began earlier and has not ended."""
    if flight.follows in state.flights:
        raise CallerError(
            f"flight {flight.id}: expected the reply to flight {flight.follows} first; the passes "
            "of a request end in the order in which they began"
        )


def check_chunk(chunk: int) -> None:
    """Raises CallerError for a chunk of less than one token."""
    if not isinstance(chunk, int) or chunk < 1:
        whole("chunk", chunk)
        raise CallerError(f"chunk: expected at least 1 token, found {chunk}")


def check_growth(length: object, computed_tokens: object) -> None:
    """Raises CallerError for lengths that are no numbers of tokens."""
    if not isinstance(length, int) or not isinstance(computed_tokens, int):
        whole("length", length)
        whole("computed_tokens", computed_tokens)


def check_key(key: Key) -> None:
    """Raises CallerError for a value that is not a Key of whole rows."""
    if not isinstance(key, Key) or not isinstance(key.raw, bytes):
        raise CallerError(f"key: expected a Key of bytes, found {key!r}")
    stride = key.stride
    if not isinstance(stride, int) or stride < 1 or stride % 8:
        whole("stride of the key", stride)
        raise CallerError(f"key: expected rows of whole 8-byte words, found {stride} bytes")
    _check_rows(key.raw, stride)
    if key.namespace != "" and not _is_text(key.namespace):
        raise CallerError(f"namespace: expected text that UTF-8 can hold, found {key.namespace!r}")


def check_prompt(state: State, key: Key, length: int, match_pages: int) -> None:
    """Raises CallerError for a prompt that cannot be accepted. The first key that an empty core
    gets sets the row length of all later keys."""
    if not isinstance(length, int) or length < 1:
        whole("length", length)
        raise CallerError(f"length: expected at least 1 token, found {length}")
    check_key(key)
    check_stride(state, key)
    most = -(-length // state.config.page_size)
    if not isinstance(match_pages, int) or key.pages > most or not 0 <= match_pages <= most:
        whole("match_pages", match_pages)
        raise CallerError(
            f"key: expected at most {most} pages for {length} tokens, "
            f"found {key.pages} with match_pages {match_pages}"
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
    whole("length", length)
    if not isinstance(key, Key) or not isinstance(key.raw, bytes):
        raise CallerError(f"key: expected a Key of bytes, found {key!r}")
    prompt = request.key
    if key.stride != prompt.stride or key.namespace != prompt.namespace:
        raise CallerError(f"request {request.id}: its key no longer starts with its prompt")
    _check_rows(key.raw, prompt.stride)
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
