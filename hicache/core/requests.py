"""What a request has: its tables, the slots and depths of its states, the pages of its windows.

    positional component    device pages by position, -1 where the request has none
    component with states   slots [working, checkpoint, checkpoint], -1 for a slot without a page

A table never changes: each write makes a read-only copy, and only this file writes them.

boundary   a page-aligned depth, a multiple of every component's interval, at which a node with a
           live end is put into the tree (see `core`). Where the prompt was known deeper than it
           could be reused there is one, because other prompts are likely to branch off there; but
           none if the request may reuse nothing (`Arrived.match_pages`), and of a core with states
           none without `Config.branch_states`.

slots      A pass or decode step overwrites the working state. In decode, the state at depth d is
           stored in checkpoint slot (d // interval) % 2, so the one before it stays intact. When a
           node takes over a state, its slot is refilled with a free page if there is one.

windows    The pages of a bounded component are taken for each chunk or growth, because most of a
           long prompt is outside its window: own pages and locks before min(t, d) - window are not
           needed any more, where t pages are computed and d is the deepest boundary still to be
           made.
"""

from collections.abc import Iterable

import numpy as np

from .actions import StateSlots
from .errors import CoreBug
from .eviction import evict_device, tombstone
from .node import Node, Request, Transfer
from .state import State
from .transfers import unlock_above
from .tree import is_there, split, start_of
from .types import BACKBONE, DEVICE, HOST, Key, Pages, frozen


def filled(length: int, start: int, pages: Pages) -> Pages:
    """A table of `length` places with these pages from `start` on, and -1 everywhere else."""
    if not 0 <= start <= length - len(pages):
        raise CoreBug(f"{len(pages)} pages from {start} on do not fit a table of {length} places")
    table = np.full(length, -1, dtype=np.int64)
    table[start : start + len(pages)] = pages
    return frozen(table)


def joined(first: Pages, second: Pages) -> Pages:
    """A table of the first pages, followed by the second, which are read-only."""
    return frozen(np.concatenate((first, second))) if len(first) else second


def extend(request: Request, index: int, pages: Pages) -> None:
    """Append pages to the request's table of a component."""
    request.tables[index] = joined(request.tables[index], pages)


def write(request: Request, index: int, parts: Iterable[tuple[int, Pages]]) -> None:
    """Replace entries of the request's table. parts: (first place, pages)."""
    table = request.tables[index].copy()
    for start, pages in parts:
        if not 0 <= start <= len(table) - len(pages):
            raise CoreBug(f"{request.id}: {len(pages)} pages from {start} on leave its table")
        table[start : start + len(pages)] = pages
    request.tables[index] = frozen(table)


def strike(request: Request, index: int, gaps: Iterable[slice]) -> None:
    """Set the entries of the request's table at these places to -1."""
    table = request.tables[index].copy()
    for gap in gaps:
        if not 0 <= gap.start <= gap.stop <= len(table):
            raise CoreBug(f"{request.id}: places {gap.start}..{gap.stop} leave its table")
        table[gap] = -1
    request.tables[index] = frozen(table)


def own_pages(state: State, request: Request, index: int) -> Pages:
    """Device pages of a component that the request owns, without those of nodes."""
    pages = request.tables[index]
    if index == BACKBONE:
        return pages[request.shared_pages :]
    if state.components[index].positional:
        pages = pages[request.shared_pages :]
    own: Pages = pages[pages >= 0]
    return own


def paged_tables(state: State, request: Request) -> tuple[Pages, ...]:
    """The tables of the positional components, the backbone's first."""
    if not state.bounded:
        return (request.tables[BACKBONE],)
    return (request.tables[BACKBONE], *[request.tables[index] for index in state.bounded])


def state_slots(
    state: State, request: Request, transfer: Transfer | None = None
) -> tuple[StateSlots, ...]:
    """The slots of the components that have states. With `transfer`, also what its pass must copy:
    the state to start from and the checkpoints to store."""
    if not state.stateful:
        return ()
    state_slots: list[StateSlots] = []
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        working, *slots = request.tables[index].tolist()
        source, checkpoints = -1, []
        if transfer is not None:
            source = request.sources[index]
            checkpoints = [
                (depth, slots[slot - 1])
                for number, depth, slot in transfer.checkpoints
                if number == index
            ]
        name = state.config.components[index]
        pair = (slots[0], slots[1])
        state_slots.append(
            StateSlots(name, source, working, pair, component.interval, tuple(sorted(checkpoints)))
        )
    return tuple(state_slots)


def boundaries_of_pass(state: State, request: Request, start: int, end: int) -> list[int]:
    """The boundaries, in pages, that a pass over tokens start..end makes, ascending."""
    interval, size = state.interval, state.config.page_size
    known = len(request.key.raw) // request.key.stride * size
    deepest = min(end, known) // interval * interval
    if state.every_end_is_live:
        return [deepest // size] if start < deepest else []
    depths = [deepest]
    if (state.config.branch_states or not state.stateful) and request.match_pages:
        depths.append(request.branch_pages * size // interval * interval)
    return sorted({depth // size for depth in depths if start < depth <= deepest})


def choose_checkpoint_slots(state: State, request: Request, transfer: Transfer, start: int) -> None:
    """Choose the slots for the states at the boundaries of a pass. The state at the last boundary
    gets the slot that decode would use for it, a state before it gets the other slot. None gets
    a slot that another pass in flight writes: its boundary is not made."""
    if not state.stateful:
        return
    size = state.config.page_size
    boundaries = boundaries_of_pass(state, request, start, transfer.end_token)
    if len(boundaries) > 2:
        raise CoreBug(f"request {request.id} has two slots for states at pages {boundaries}")
    busy = {
        (index, slot)
        for item in request.passes
        for index, _, slot in state.transfers[item].checkpoints
    }
    for index, component in enumerate(state.components):
        if component.positional or not boundaries:
            continue
        first = 1 + boundaries[-1] * size // component.interval % 2
        for pages, slot in zip(reversed(boundaries), (first, 3 - first), strict=False):
            if request.tables[index][slot] >= 0 and (index, slot) not in busy:
                transfer.checkpoints.append((index, pages * size, slot))


def note_decoded(state: State, request: Request, length: int) -> None:
    """The request may have decoded up to `length` tokens: note which states its slots have now.

    Only the slot of the last boundary counts, because a step that ran ahead by less than two
    intervals may have overwritten the other one. It counts only if the request already had that
    slot when it passed the boundary.
    """
    if not state.stateful or request.computed_tokens < request.length:
        return
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        turn = length // component.interval
        depth, buffer = turn * component.interval, turn % 2
        known = request.checkpoint_tokens[index][buffer]
        if known > max(length, request.length):
            raise CoreBug(f"request {request.id} has a state of {known} of its {length} tokens")
        if depth > request.length:
            there = request.tables[index][1 + buffer] >= 0 and depth > request.refilled_at_tokens
            known = depth if there else 0
        request.checkpoint_tokens[index] = [0] * (component.slots - 1)
        request.checkpoint_tokens[index][buffer] = known


def boundaries_at_end(state: State, request: Request, key: Key, length: int) -> list[int]:
    """The boundaries, in pages, that a request can make when it ends: depths of at most `length`
    tokens for which every component with states has the state in a checkpoint slot. If no component
    has states, the end of the key is the only boundary; its last page may be partly filled."""
    if not state.stateful:
        pages = len(key.raw) // key.stride
        return [pages] if pages else []
    numbers: list[set[int]] = [
        set(depths)
        for component, depths in zip(state.components, request.checkpoint_tokens, strict=True)
        if not component.positional
    ]
    common = set.intersection(*numbers)
    limit = min(length, key.pages * state.config.page_size)
    return sorted(depth // state.config.page_size for depth in common if 0 < depth <= limit)


def owns_every_checkpoint_slot(state: State, request: Request) -> bool:
    """Whether the request has all of its slots for states."""
    return not state.stateful or all(
        component.positional or -1 not in request.tables[index].tolist()
        for index, component in enumerate(state.components)
    )


def make_slot_room(state: State, counts: list[int]) -> bool:
    """Try to free that many slots of each component, for states that nodes take over. It is not an
    error if fewer become free. Returns whether it asked for an eviction."""
    evicted = False
    for index, count in enumerate(counts):
        pool = state.pools[DEVICE][index]
        if pool.free < count:
            evict_device(state, index, min(count - pool.free, pool.evictable))
            evicted = True
    return evicted


def refill_checkpoint_slots(state: State, request: Request, since: int) -> None:
    """Take a free page for each missing slot, as far as there are free pages. since: tokens that
    the request may have computed by now; the new slots do not have the states up to there."""
    if not state.stateful:
        return
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        pool = state.pools[DEVICE][index]
        empty = [slot for slot, page in enumerate(request.tables[index].tolist()) if page < 0]
        taken = [(slot, pool.take(1, request.id)) for slot in empty[: pool.free]]
        if taken:
            write(request, index, taken)
            request.refilled_at_tokens = max(request.refilled_at_tokens, since)


def limit_states(state: State, path: list[Node]) -> None:
    """Limit the states on a path to the number that each component allows. The shallowest are freed
    first, except those in use, those at a branch and the deepest."""
    for index, component in enumerate(state.components):
        holding = [node for node in path if is_there(node, index)] if component.per_path else []
        excess = len(holding) - component.per_path
        for node in holding[:-1]:
            busy = any(side[index] for side in node.locks) or any(
                segment.component == index for segment in node.segments
            )
            if excess > 0 and not busy and len(node.children) <= 1:
                excess -= 1
                for tier in (HOST, DEVICE):
                    if node.pages[tier][index] is not None:
                        tombstone(state, node, tier, index)


def pages_of(state: State, tokens: int) -> int:
    return -(-tokens // state.config.page_size)


def reachable_end(state: State, request: Request, index: int, end: int) -> int:
    """The token up to which a pass that should end at token `end` has pages of a bounded
    component."""
    free_pages = state.pools[DEVICE][index].available
    return min(end, (request.filled_pages + free_pages) * state.config.page_size)


def fill(state: State, request: Request, upto: int) -> None:
    """Take the pages of bounded components for the positions up to page `upto`. They must be
    free."""
    first = request.filled_pages
    if upto <= first:
        return
    for index in state.bounded:
        pages = state.pools[DEVICE][index].take(upto - first, request.id)
        write(request, index, [(first, pages)])
    request.filled_pages = upto


def release_behind(state: State, request: Request, computed: int, exactly: bool = False) -> None:
    """Free and unlock pages of bounded components that no token after the first `computed` reads.

    A lock ends only when the whole node can be unlocked. With `exactly`, used when a pool is short
    of pages, nodes are split so that the lock covers no more than the window.
    """
    if state.every_end_is_live or request.receipt is None:
        return
    interval, size = state.interval, state.config.page_size
    low = computed // size
    boundary = computed // interval * interval // size
    if boundary > request.shared_pages and owns_every_checkpoint_slot(state, request):
        low = boundary
    for index in state.bounded:
        first = max(low - state.components[index].window_pages, request.cleared_pages[index])
        if first <= 0:
            continue
        locked = request.receipt.locked[index] if exactly else []
        for node, _ in locked:
            start = start_of(node, state.stride)
            if start < first < node.end_page:
                split(state, node, first - start)
                break
        unlock_above(state, request.receipt, index, first)
        if first > request.cleared_pages[index]:
            _clear(state, request, index, first)


def _clear(state: State, request: Request, index: int, first: int) -> None:
    """Free the request's own pages of the component at the first `first` positions."""
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    if not since < first <= request.filled_pages:
        raise CoreBug(
            f"request {request.id} gives back pages {since}..{first} of component {index}"
        )
    own = request.tables[index][max(since, request.shared_pages) : first]
    state.pools[DEVICE][index].give_back(own[own >= 0])
    strike(request, index, [slice(since, first)])
