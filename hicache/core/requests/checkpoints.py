"""Checkpoints: the depths at which a request makes boundaries, and its slots for states.

boundary   a page-aligned depth, a multiple of every component's interval, at which a node with a
           live end is put into the tree. A request makes one at the end of each pass. If the
           prompt was known deeper than it could be reused, the request makes one at that depth
           too, because other prompts are likely to branch off there; but not a request that may
           reuse nothing (`Arrived.match_pages`), which has states at the ends of its passes alone,
           and no request without `Config.branch_states`.

slots      [working, checkpoint, checkpoint]. A pass or decode step overwrites the working state.
           In decode, the state at depth d is stored in checkpoint slot (d // interval) % 2, so the
           one before it stays intact. When a node takes over a state, its slot is refilled with a
           free page if there is one.

This file decides which depths are boundaries, which slot has which state, and how many states a
path keeps. It does not create nodes; see `insertion`.
"""

from __future__ import annotations

from ..errors import CoreBug
from ..eviction import tombstone
from ..radix.boundaries import is_there
from ..radix.node import Flight, Node
from ..reclaim import evict_device
from ..state import State
from ..types import DEVICE, HOST, Key
from .record import Request
from .tables import write


def boundaries_of_pass(state: State, request: Request, start: int, end: int) -> list[int]:
    """The boundaries, in pages, that a pass over tokens start..end makes, ascending."""
    interval, size = state.interval, state.config.page_size
    deepest = min(end, request.key.pages * size) // interval * interval
    depths = [deepest]
    branches = state.config.branch_states or not state.stateful
    if branches and request.match_pages and not state.every_end_is_live:
        depths.append(request.branch_pages * size // interval * interval)
    return sorted({depth // size for depth in depths if start < depth <= deepest})


def choose_checkpoint_slots(state: State, request: Request, flight: Flight, start: int) -> None:
    """Choose the slots for the states at the boundaries of a pass. The state at the last boundary
    gets the slot that decode would use for it, a state before it gets the other slot. None gets
    a slot that another pass in flight writes: its boundary is not made."""
    if not state.stateful:
        return
    size = state.config.page_size
    boundaries = boundaries_of_pass(state, request, start, flight.end_token)
    if len(boundaries) > 2:
        raise CoreBug(f"request {request.id} has two slots for states at pages {boundaries}")
    busy = {
        (index, slot) for one in request.passes for index, _, slot in state.flights[one].checkpoints
    }
    for index, component in enumerate(state.components):
        if component.positional or not boundaries:
            continue
        first = 1 + boundaries[-1] * size // component.interval % 2
        for pages, slot in zip(reversed(boundaries), (first, 3 - first), strict=False):
            if request.tables[index][slot] >= 0 and (index, slot) not in busy:
                flight.checkpoints.append((index, pages * size, slot))


def note_checkpoints(request: Request, flight: Flight) -> None:
    """The pass has ended: note which states the slots have now."""
    for index, depth, slot in flight.checkpoints:
        request.checkpoint_tokens[index][slot - 1] = depth


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
    """The boundaries, in pages, that a request can make when it ends: depths of at most `length`
    tokens for which every component with states has the state in a checkpoint slot. If no component
    has states, the end of the key is the only boundary; its last page may be partly filled."""
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
                leg.component == index for leg in node.legs
            )
            if excess > 0 and not busy and len(node.children) <= 1:
                excess -= 1
                for tier in (HOST, DEVICE):
                    if node.pages[tier][index] is not None:
                        tombstone(state, node, tier, index)
