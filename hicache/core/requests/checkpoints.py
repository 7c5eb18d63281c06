"""The depths at which a request leaves what a later one needs, and the slots it has for states.

boundary   a page-aligned depth, multiple of every component's interval, where the tree gets a
           node whose end is live: at the end of each pass and, where the prompt is known
           deeper than it could be reused, also there, because others are likely to part there

slots      [working, checkpoint, checkpoint]: a pass or decode step overwrites the working state;
           the state at depth d of a decode goes to checkpoint slot (d // interval) % 2, so the one
           before it stays whole. A slot whose state a node takes over is replaced, or nothing is
           taken.

Lives here: which depths are boundaries, which slot holds which state, and how many states a path
keeps. Must not live here: the tree's nodes at those boundaries (`insertion`).
"""

from __future__ import annotations

from ..errors import CoreBug
from ..eviction import tombstone
from ..radix.boundaries import is_there
from ..radix.node import Flight, Node, Request
from ..reclaim import evict_device
from ..state import State
from ..types import Key, Tier
from .tables import write


def boundaries_of_pass(state: State, request: Request, start: int, end: int) -> list[int]:
    """Pages up to the boundaries that a pass over tokens start..end makes, ascending."""
    interval, size = state.interval, state.config.page_size
    deepest = min(end, request.key.pages * size) // interval * interval
    depths = [deepest]
    if not state.every_end_is_live:
        depths.append(request.branch_pages * size // interval * interval)
    return sorted({depth // size for depth in depths if start < depth <= deepest})


def choose_checkpoint_slots(state: State, request: Request, flight: Flight, start: int) -> None:
    """Which slots get the states at the boundaries of a pass: the last one the slot that a decode
    would use for it, one before it the other."""
    if not state.stateful:
        return
    size = state.config.page_size
    boundaries = boundaries_of_pass(state, request, start, flight.end_token)
    if len(boundaries) > 2:
        raise CoreBug(f"request {request.id} has two slots for states at pages {boundaries}")
    for index, component in enumerate(state.components):
        if component.positional or not boundaries:
            continue
        first = 1 + boundaries[-1] * size // component.interval % 2
        for pages, slot in zip(reversed(boundaries), (first, 3 - first), strict=False):
            if request.tables[index][slot] >= 0:
                flight.checkpoints.append((index, pages * size, slot))


def note_checkpoints(request: Request, flight: Flight) -> None:
    """The pass is over: the slots hold those states now."""
    for index, depth, slot in flight.checkpoints:
        request.checkpoint_tokens[index][slot - 1] = depth


def note_decoded(state: State, request: Request, length: int) -> None:
    """The request may have decoded, up to `length` tokens: what its checkpoint slots hold by now.

    Only the slot of the last boundary is counted on, because a step that ran ahead, by less than
    two intervals, may have written the other one; and only where the request had that slot already
    when it passed the boundary.
    """
    if request.computed_tokens < request.length:
        return
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        turn = length // component.interval
        depth, half = turn * component.interval, turn % 2
        known = request.checkpoint_tokens[index][half]
        if known > max(length, request.length):
            raise CoreBug(f"request {request.id} has a state of {known} of its {length} tokens")
        if depth > request.length:
            there = request.tables[index][1 + half] >= 0 and depth > request.refilled_at_tokens
            known = depth if there else 0
        request.checkpoint_tokens[index] = [0] * (component.slots - 1)
        request.checkpoint_tokens[index][half] = known


def boundaries_at_end(state: State, request: Request, key: Key, length: int) -> list[int]:
    """Pages up to the boundaries, of at most `length` tokens, whose states are in the checkpoint
    slots of every component that has states; without such a component, all of the key, whose last
    page may be a partial one."""
    if not state.stateful:
        return [key.pages] if key.pages else []
    found: list[set[int]] = [
        set(depths)
        for component, depths in zip(state.components, request.checkpoint_tokens, strict=True)
        if not component.positional
    ]
    common = set.intersection(*found)
    limit = min(length, key.pages * state.config.page_size)
    return sorted(depth // state.config.page_size for depth in common if 0 < depth <= limit)


def owns_every_checkpoint_slot(state: State, request: Request) -> bool:
    """Whether it owns every slot that it leaves states in."""
    return not state.stateful or all(
        component.positional or -1 not in request.tables[index].tolist()
        for index, component in enumerate(state.components)
    )


def make_slot_room(state: State, counts: list[int]) -> bool:
    """Try to have that many free slots of each component: for what nodes take over. Optional:
    whatever cannot be had now is done without. Whether anything was evicted for it."""
    evicted = False
    for index, count in enumerate(counts):
        pool = state.pools[Tier.DEVICE][index]
        if pool.free < count:
            evict_device(state, index, min(count - pool.free, pool.evictable))
            evicted = True
    return evicted


def refill_checkpoint_slots(state: State, request: Request, since: int) -> None:
    """Fill up the checkpoint slots that are missing, where slots are free. since: tokens that it
    may have computed by now, whose states they cannot hold."""
    for index, component in enumerate(state.components) if state.stateful else ():
        if component.positional:
            continue
        pool = state.pools[Tier.DEVICE][index]
        empty = [slot for slot, page in enumerate(request.tables[index].tolist()) if page < 0]
        taken = [(slot, pool.take(1, request.id)) for slot in empty[: pool.free]]
        if taken:
            write(request, index, taken)
            request.refilled_at_tokens = max(request.refilled_at_tokens, since)


def limit_states(state: State, path: list[Node]) -> None:
    """Keep no more states on a path than a component allows: the shallowest go first, but for those
    at which paths part, and those in use."""
    for index, component in enumerate(state.components):
        holding = [node for node in path if is_there(node, index)] if component.per_path else []
        excess = len(holding) - component.per_path
        for node in holding[:-1]:
            busy = any(side[index] for side in node.locks) or any(
                leg.component == index for leg in node.legs
            )
            if excess > 0 and not busy and len(node.children) <= 1:
                excess -= 1
                for tier in (Tier.HOST, Tier.DEVICE):
                    if node.pages[tier][index] is not None:
                        tombstone(state, node, tier, index)
