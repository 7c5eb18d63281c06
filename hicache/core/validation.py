"""What a caller may say: every check of an event that ends in a CallerError.

Lives here: the checks of ids, numbers and keys, none of which changes anything, so that an event
that is refused leaves the core as it was. Must not live here: refusals that are answers
(`placement`), and asserts about the core itself.
"""

from __future__ import annotations

from .errors import CallerError
from .radix.node import Request
from .state import State
from .types import BACKBONE, MOST_PRIORITY, Key, RequestId


def whole(name: str, value: object) -> None:
    """Raises CallerError for what is no int (numpy's are none)."""
    if not isinstance(value, int):
        raise CallerError(f"{name}: expected a whole number, an int, found {value!r}")


def check_new(state: State, request_id: RequestId) -> None:
    """Raises CallerError where a request of this id cannot arrive."""
    whole("request", request_id)
    if request_id < 0 or request_id in state.requests:
        raise CallerError(f"request {request_id}: expected a new id from 0 up")


def check_priority(priority: int) -> None:
    """Raises CallerError for a priority that no rank can hold."""
    whole("priority", priority)
    if abs(priority) > MOST_PRIORITY:
        raise CallerError(
            f"priority: expected -{MOST_PRIORITY} to {MOST_PRIORITY}, found {priority}"
        )


def known(state: State, request_id: RequestId) -> Request:
    """The live request of this id. Raises CallerError where there is none."""
    whole("request", request_id)
    request = state.requests.get(request_id)
    if request is None:
        raise CallerError(f"request {request_id}: expected a live request, found none")
    return request


def waiting(state: State, request_id: RequestId) -> Request:
    """The waiting request of this id. Raises CallerError for any other."""
    whole("request", request_id)
    request = state.requests.get(request_id)
    if request is None or request.admitted:
        found = "none" if request is None else "an admitted one"
        raise CallerError(f"request {request_id}: expected a waiting request, found {found}")
    return request


def idle(state: State, request_id: RequestId) -> Request:
    """The admitted request of this id, of which no pass runs. Raises CallerError for any other."""
    whole("request", request_id)
    request = state.running.get(request_id)
    if request is None or request.prefill:
        found = "none" if request is None else "one whose prefill is in flight"
        raise CallerError(f"request {request_id}: expected an idle admitted request, found {found}")
    return request


def check_chunk(chunk: int) -> None:
    """Raises CallerError for a chunk of no token."""
    whole("chunk", chunk)
    if chunk < 1:
        raise CallerError(f"chunk: expected at least 1 token, found {chunk}")


def check_key(key: Key) -> None:
    """Raises CallerError for what is no key of whole rows."""
    if not isinstance(key, Key) or not isinstance(key.raw, bytes):
        raise CallerError(f"key: expected a Key of bytes, found {key!r}")
    whole("stride of the key", key.stride)
    if key.stride < 1 or key.stride % 8:
        raise CallerError(f"key: expected rows of whole 8-byte words, found {key.stride} bytes")
    if len(key.raw) % key.stride:
        raise CallerError(
            f"key: expected rows of {key.stride} bytes, found {len(key.raw)} bytes, which are no "
            "whole rows; leave the last page out until it is full"
        )
    if not _is_text(key.namespace):
        raise CallerError(f"namespace: expected text that UTF-8 can hold, found {key.namespace!r}")


def check_prompt(state: State, key: Key, length: int, match_pages: int) -> None:
    """Raises CallerError for a prompt that cannot wait. The first key of an empty core says how
    long the rows of all others are."""
    whole("length", length)
    whole("match_pages", match_pages)
    if length < 1:
        raise CallerError(f"length: expected at least 1 token, found {length}")
    check_key(key)
    in_use = state.requests or state.root.children
    if in_use and key.stride != state.stride:
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


def check_committed(state: State, request: Request, key: Key, length: int) -> None:
    """Raises CallerError where the request cannot leave these tokens behind."""
    whole("length", length)
    check_key(key)
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
    prompt = request.key.first(request.shared_pages).raw
    same = (key.namespace, key.stride) == (request.key.namespace, request.key.stride)
    if not same or not key.raw.startswith(prompt):
        raise CallerError(f"request {request.id}: its key no longer starts with its prompt")


def _is_text(namespace: str) -> bool:
    try:
        return isinstance(namespace, str) and namespace.encode() is not None
    except UnicodeEncodeError:
        return False
