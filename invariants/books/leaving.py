"""The bytes that a finished request commits.

Lives here: the arithmetic of committed tokens on the page books. Does not change the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import StateSlots

from .kinds import Kind
from .pages import PageBook
from .requests import RequestMirror
from .tags import POISON, Tags


def commit(
    req: RequestMirror,
    tags: Tags,
    length: int,
    device: Sequence[PageBook],
    kinds: Sequence[Kind],
    page_size: int,
) -> None:
    """Files the content of decoded pages and states when a request leaves.

    After the tokens that prefills computed, the engine guarantees the bytes by position, and the
    states that decoding left in the checkpoint slots.
    """
    known = min(req.computed_tokens // page_size, len(req.tags))
    pages = min(len(tags), len(req.tables[0]))
    states = iter(req.states)
    for kind in kinds:
        book = device[kind.at]
        if not kind.positional:
            _left_in_checkpoint_slots(book, next(states, None), req, tags, length, page_size)
        elif pages > known:
            table = req.tables[kind.at][known:pages]
            book.content[table[table >= 0]] = tags[known:pages][table >= 0]


def note_checkpoint_slots(req: RequestMirror, states: tuple[StateSlots, ...], room: int) -> None:
    """Files the checkpoint slots of a request.

    A new slot cannot hold the state of an earlier depth. room: maximum number of tokens that were
    computed when the slot was assigned.
    """
    known = [page for state in req.states for page in state.checkpoint_slots]
    fresh = [page for state in states for page in state.checkpoint_slots if page >= 0]
    if req.states and any(page not in known for page in fresh):
        req.refilled_at_tokens = max(req.refilled_at_tokens, room)
    req.states = states


def _left_in_checkpoint_slots(
    book: PageBook,
    state: StateSlots | None,
    req: RequestMirror,
    tags: Tags,
    length: int,
    page_size: int,
) -> None:
    """Files the state that decoding left in the checkpoint slots.

    Decoding writes a state at each multiple of the interval, into the two slots by turns. The
    content of the other slot is unknown, because a later step may have written it.
    """
    if state is None or req.computed_tokens < req.length:
        return
    turn = length // state.interval
    depth, last = turn * state.interval, state.checkpoint_slots[turn % 2]
    other = state.checkpoint_slots[1 - turn % 2]
    if other >= 0:
        book.content[other] = POISON
    if last >= 0 and depth > req.computed_tokens:
        fine = depth > req.refilled_at_tokens and depth <= len(tags) * page_size
        book.content[last] = tags[depth // page_size - 1] if fine else POISON
