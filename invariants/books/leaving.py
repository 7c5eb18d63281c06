"""The bytes that a finished request commits, and the boundaries that an insertion makes.

Lives here: the arithmetic of committed tokens on the page books. Does not change the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Evicted, Outcome, StateSlots
from hicache.core.types import Tier

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
    """Files the content of decoded pages and states when a request leaves.

    After the tokens that prefills computed, the engine guarantees the bytes by position, and the
    states that decoding left in the checkpoint slots. Returns the boundaries in pages, deepest
    first, for which the request has everything; if there are none, the boundary that it shares.
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
    if len(kinds) == 1:
        return [pages]
    made = [
        depth
        for depth in range(pages, req.boundary, -1)
        if all(_has(req, kind, device[kind.at], tags, depth) for kind in kinds)
    ]
    if all(kind.positional for kind in kinds):
        made = made[:1]  # every depth is possible; only the last one is made
    return made or [req.boundary]


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


def _has(req: RequestMirror, kind: Kind, book: PageBook, tags: Tags, depth: int) -> bool:
    """Whether the request owns or shares what this boundary requires of a component."""
    if not kind.positional:
        own = req.own[kind.at]
        return bool((book.content[own] == tags[depth - 1]).any())
    if not kind.at:
        return True
    return bool((req.tables[kind.at][max(0, depth - kind.need) : depth] >= 0).all())


def branch_of(req: RequestMirror, kinds: Sequence[Kind], since: int, page_size: int) -> int:
    """Returns the boundary that an insertion makes above its last one, or 0.

    It is at the depth to which the prompt was cached, if that is deeper than the reused depth:
    other prompts are likely to branch there. 0 if the pass began (at token `since`) behind it, or
    if the request lacks the window pages.
    """
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
    """Returns the boundary above the last one if the insertion made it.

    It may be missing again, if its state exceeded the limit per path and was evicted (`gone`).
    """
    if not req.made:
        return ()
    mirror = nodes.at.get(int(req.tags[req.made - 1]))
    left = [kind for kind in kinds if kind.positional or kind.name not in gone]
    return (req.made,) if mirror is not None and valid(mirror, left) else ()


def evicted_after_use(outcomes: Sequence[Outcome], clock: int) -> list[str]:
    """Components whose pages were evicted from device after the last use in this event.

    Earlier evictions made room for the insertion, and do not concern the boundary that it made.
    """
    return [
        item.component
        for item in outcomes
        if type(item) is Evicted and item.tier == Tier.DEVICE and item.last_use > clock
    ]
