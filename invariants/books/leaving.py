"""What a request leaves behind: the bytes that its engine vouches for when it ends well, and the
boundaries that an insertion makes.

Lives here: the arithmetic of committed tokens, on the page books. Must not live here: the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import StateSlots

from .kinds import Kind
from .mirror import valid
from .nodes import NodeBook
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
) -> list[int]:
    """Behind the tokens that prefills computed, the engine vouches for the bytes by position, and
    for the states that decoding left in the checkpoint slots. Returns the boundaries, in pages and
    the deepest first, that the request has everything for; if there is none, the one that it
    shares."""
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
    if len(kinds) == 1:
        return [pages]
    made = [
        depth
        for depth in range(pages, req.boundary, -1)
        if all(_has(req, kind, device[kind.at], tags, depth) for kind in kinds)
    ]
    if all(kind.positional for kind in kinds):
        made = made[:1]  # any depth would do: the last
    return made or [req.boundary]


def note_checkpoint_slots(req: RequestMirror, states: tuple[StateSlots, ...], room: int) -> None:
    """A new checkpoint slot cannot hold the state of a depth passed before; at most `room` tokens
    were computed by then."""
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
    """Decoding leaves a state at each multiple of the interval, by turns in two slots. What is in
    the other one nobody knows: a step that ran ahead may have written it."""
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


def _has(req: RequestMirror, kind: Kind, book: PageBook, tags: Tags, depth: int) -> bool:
    """Whether the request holds, or shares, what this boundary requires of a component."""
    if not kind.positional:
        own = req.own[kind.at]
        return bool((book.content[own] == tags[depth - 1]).any())
    if not kind.at:
        return True
    return bool((req.tables[kind.at][max(0, depth - kind.need) : depth] >= 0).all())


def branch_of(req: RequestMirror, kinds: Sequence[Kind], since: int, page_size: int) -> int:
    """The boundary that an insertion makes above its last, where the prompt was known deeper than
    it could be reused: others are likely to part there. 0 where the pass, from token `since` on,
    began behind it, or the request has no window for it."""
    if len(kinds) == 1:
        return 0
    each = max(kind.interval for kind in kinds)
    depth = req.branch_pages * page_size // each * each // page_size
    if not since < depth * page_size < req.boundary * page_size:
        return 0
    windows = [kind for kind in kinds[1:] if kind.positional]
    tables = [req.tables[kind.at][max(0, depth - kind.need) : depth] for kind in windows]
    return depth if all((table >= 0).all() for table in tables) else 0


def made_of(
    req: RequestMirror, nodes: NodeBook, kinds: Sequence[Kind], gone: Sequence[str]
) -> Sequence[int]:
    """The boundary above its last that an insertion made, if it came to be: its state may have been
    one too many on the path, and `gone` again."""
    if not req.made:
        return ()
    mirror = nodes.at.get(int(req.tags[req.made - 1]))
    left = [kind for kind in kinds if kind.positional or kind.name not in gone]
    return (req.made,) if mirror is not None and valid(mirror, left) else ()
