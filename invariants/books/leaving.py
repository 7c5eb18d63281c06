"""What a request leaves behind: the bytes that its engine vouches for when it ends well, and the
boundaries that an insertion makes.

Lives here: the arithmetic of committed tokens, on the page books. Must not live here: the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import StateSlots

from .kinds import Kind
from .nodes import NodeBook
from .pages import PageBook
from .seats import Seat
from .shadow import valid
from .tags import POISON, Tags


def commit(
    seat: Seat,
    tags: Tags,
    length: int,
    device: Sequence[PageBook],
    kinds: Sequence[Kind],
    page_size: int,
) -> list[int]:
    """Behind the tokens that prefills computed, the engine vouches for the bytes by position, and
    for the states that decoding left in the tracks. Returns the boundaries, in pages and the
    deepest first, that the request has everything for; the one that it shares if there is none."""
    known = min(seat.computed_tokens // page_size, len(seat.tags))
    pages = min(len(tags), len(seat.tables[0]))
    states = iter(seat.states)
    for kind in kinds:
        book = device[kind.at]
        if not kind.positional:
            _left_in_tracks(book, next(states, None), seat, tags, length, page_size)
        elif pages > known:
            table = seat.tables[kind.at][known:pages]
            book.content[table[table >= 0]] = tags[known:pages][table >= 0]
    if len(kinds) == 1:
        return [pages]
    made = [
        depth
        for depth in range(pages, seat.boundary, -1)
        if all(_has(seat, kind, device[kind.at], tags, depth) for kind in kinds)
    ]
    if all(kind.positional for kind in kinds):
        made = made[:1]  # any depth would do: the last
    return made or [seat.boundary]


def note_tracks(seat: Seat, states: tuple[StateSlots, ...], room: int) -> None:
    """A track that is new cannot hold the state of a depth passed before; at most `room` tokens
    were computed by then."""
    known = [page for state in seat.states for page in state.checkpoint_slots]
    fresh = [page for state in states for page in state.checkpoint_slots if page >= 0]
    if seat.states and any(page not in known for page in fresh):
        seat.refilled_at_tokens = max(seat.refilled_at_tokens, room)
    seat.states = states


def _left_in_tracks(
    book: PageBook, state: StateSlots | None, seat: Seat, tags: Tags, length: int, page_size: int
) -> None:
    """Decoding leaves a state at each multiple of the interval, by turns in the two tracks. What is
    in the other one nobody knows: a step that ran ahead may have written it."""
    if state is None or seat.computed_tokens < seat.length:
        return
    turn = length // state.interval
    depth, last = turn * state.interval, state.checkpoint_slots[turn % 2]
    other = state.checkpoint_slots[1 - turn % 2]
    if other >= 0:
        book.content[other] = POISON
    if last >= 0 and depth > seat.computed_tokens:
        fine = depth > seat.refilled_at_tokens and depth <= len(tags) * page_size
        book.content[last] = tags[depth // page_size - 1] if fine else POISON


def _has(seat: Seat, kind: Kind, book: PageBook, tags: Tags, depth: int) -> bool:
    """Whether the request holds, or shares, what this boundary requires of a component."""
    if not kind.positional:
        own = seat.own[kind.at]
        return bool((book.content[own] == tags[depth - 1]).any())
    if not kind.at:
        return True
    return bool((seat.tables[kind.at][max(0, depth - kind.need) : depth] >= 0).all())


def branch_of(seat: Seat, kinds: Sequence[Kind], since: int, page_size: int) -> int:
    """The boundary that an insertion makes above its last, where the prompt was known deeper than
    it could be reused: others are likely to part there. 0 where the pass, from token `since` on,
    began behind it, or the request has no window for it."""
    if len(kinds) == 1:
        return 0
    each = max(kind.interval for kind in kinds)
    depth = seat.branch_pages * page_size // each * each // page_size
    if not since < depth * page_size < seat.boundary * page_size:
        return 0
    windows = [kind for kind in kinds[1:] if kind.positional]
    tables = [seat.tables[kind.at][max(0, depth - kind.need) : depth] for kind in windows]
    return depth if all((table >= 0).all() for table in tables) else 0


def made_of(
    seat: Seat, nodes: NodeBook, kinds: Sequence[Kind], gone: Sequence[str]
) -> Sequence[int]:
    """The boundary above its last that an insertion made, if it came to be: its state may have been
    one too many on the path, and `gone` again."""
    if not seat.made:
        return ()
    shadow = nodes.at.get(int(seat.tags[seat.made - 1]))
    left = [kind for kind in kinds if kind.positional or kind.name not in gone]
    return (seat.made,) if shadow is not None and valid(shadow, left) else ()
