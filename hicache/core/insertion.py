"""Putting a request's computed pages into the tree: adopt what is missing, free duplicates.

    table   |--- shared ---|--------- own ---------|
                           ^ nodes that appeared meanwhile replace own pages (duplicates are freed),
                             nodes without them adopt them, and the rest becomes new nodes

A bounded component is kept only where one of the boundaries that are made requires it, and nodes
are cut there, so that no node holds it in part:

    boundary                        b1                    b2
    tree      |-- tombstone --|-- window --|-- tombstone --|-- window --|
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .checkpoints import limit_states, make_slot_room, refill_checkpoint_slots
from .errors import About, CoreBug
from .radix.locks import lock_required
from .radix.lru import offer
from .radix.matching import cut, match
from .radix.node import Node, Request
from .radix.tree import BACKBONE, attach, label_of, new_child, start_of
from .state import State
from .types import Key, Pages, Tier, frozen


def insert(state: State, request: Request, key: Key, made: list[int], last: bool) -> list[Node]:
    """The pages up to the boundaries in `made` are computed: make them nodes' and lock what the
    last one requires.

    Returns the path that now holds them. The request's tables may change; the old ones are
    snapshots that others may still hold. `last`: the request needs no slots for states afterwards.
    Where the states of a boundary cannot be handed over, or a window is incomplete, that boundary
    is left out, and what lies behind the last one stays the request's own.
    """
    new = [pages for pages in made if pages > request.shared_pages]
    if new and not state.every_end_is_live:
        needs = [_needs(state, request, key, pages) for pages in new]
        if not last and make_slot_room(state, _sums(needs, len(state.components))):
            needs = [_needs(state, request, key, pages) for pages in new]
        new = _ready(state, new, needs, last)
    upto = new[-1] if new else request.shared_pages
    path = match(state, key, upto, request.shared_node)
    for at in _cuts(state, new):
        cut(state, path, at)
    _give_back_unneeded(state, request, new)
    _share(state, request, path)
    if (path[-1].end_page if path else 0) < upto:
        _grow(state, request, path, key, upto, new)
    _donate(state, request, path, new)
    since, request.shared_pages = request.shared_pages, upto
    request.shared_node = path[-1] if path else None
    if request.receipt is None:
        raise CoreBug(
            f"request {request.id} has no receipt to lock with", About("request", request.id)
        )
    lock_required(state, request.receipt, path, since)
    use(state, request, path, new)
    for node in path:
        node.host_refused = 0
    if not state.every_end_is_live:
        _offer_unlocked(state, path, since)
        limit_states(state, path)
        if not last:
            refill_checkpoint_slots(state, request, request.computed_tokens)
    return path


def _offer_unlocked(state: State, path: list[Node], since: int) -> None:
    """What the last boundary does not require of the path behind page `since` is not locked."""
    for node in path:
        if node.end_page > since:
            for index in range(BACKBONE + 1, len(state.components)):
                offer(state.queues, state.eviction, node, Tier.DEVICE, index)


def use(state: State, request: Request, path: list[Node], made: Sequence[int] = ()) -> None:
    """The request uses the path: it counts for what its end, and each boundary that it has made on
    the way, requires of each component."""
    state.tick += 1
    tick, whole, priority = state.tick, state.eviction.whole_path, request.priority
    for node in path:
        node.last_use[BACKBONE] = tick
        if node.priority < priority:
            node.priority = priority
        state.touched[node.id] = node
    ends = made or [path[-1].end_page if path else 0]
    for index, component in enumerate(state.components):
        if index == BACKBONE:
            continue
        if whole:
            for node in path:
                node.last_use[index] = tick
            continue
        for end in ends:
            for node in reversed(path):
                if end - node.end_page >= component.window_pages:
                    break
                if node.end_page <= end:
                    node.last_use[index] = tick


def _sums(needs: list[list[int] | None], components: int) -> list[int]:
    """Slots of each component that nodes would take over if every boundary were made."""
    return [sum(one[index] for one in needs if one is not None) for index in range(components)]


def _ready(state: State, made: list[int], needs: list[list[int] | None], last: bool) -> list[int]:
    """The boundaries for which everything is at hand; the deepest have the first call on slots."""
    spare = [len(made) if last else pool.free for pool in state.pools[Tier.DEVICE]]
    ready = []
    for pages, needed in zip(reversed(made), reversed(needs), strict=True):
        if needed is not None and all(
            have >= count for have, count in zip(spare, needed, strict=True)
        ):
            ready.append(pages)
            spare = [have - count for have, count in zip(spare, needed, strict=True)]
    return ready[::-1]


def _needs(state: State, request: Request, key: Key, pages: int) -> list[int] | None:
    """Slots of each component that a node takes over at this boundary; None where a state is
    neither in the tree nor in a checkpoint slot, or a window is incomplete."""
    needs = [0] * len(state.components)
    if state.stateful:
        depth = pages * state.config.page_size
        path = match(state, key, pages, request.shared_node)
        there = path[-1] if path and path[-1].end_page == pages else None
        for index, component in enumerate(state.components):
            if component.positional or (there and there.pages[Tier.DEVICE][index] is not None):
                continue
            if depth not in request.checkpoint_tokens[index]:
                return None
            needs[index] = 1
    return needs if _has_windows(state, request, pages) else None


def _has_windows(state: State, request: Request, pages: int) -> bool:
    return all(
        index == BACKBONE
        or not component.positional
        or bool((request.tables[index][max(0, pages - component.window_pages) : pages] >= 0).all())
        for index, component in enumerate(state.components)
    )


def _cuts(state: State, made: Sequence[int]) -> list[int]:
    """Where nodes must end, ascending: at boundaries, and where what they require begins."""
    if state.every_end_is_live:
        return []
    starts = [
        pages - component.window_pages
        for component in state.components
        if component.positional
        for pages in made
    ]
    return sorted({at for at in (*made, *starts) if at > 0})


def _give_back_unneeded(state: State, request: Request, made: Sequence[int]) -> None:
    """Own pages of bounded components that none of the boundaries requires go back."""
    for index, component in enumerate(state.components):
        if index == BACKBONE or not component.positional:
            continue
        start, gaps = request.shared_pages, []
        for pages in made:
            gaps.append(slice(start, max(start, pages - component.window_pages)))
            start = pages
        _give_back_at(state, request, index, [gap for gap in gaps if gap.start < gap.stop])


def _give_back_at(state: State, request: Request, index: int, gaps: list[slice]) -> None:
    """Give back the request's own pages of a component at these positions."""
    table = request.tables[index]
    own = [part[part >= 0] for part in (table[gap] for gap in gaps)]
    if not any(map(len, own)):
        return
    table = table.copy()
    for gap in gaps:
        table[gap] = -1
    request.tables[index] = frozen(table)
    state.pools[Tier.DEVICE][index].give_back(own[0] if len(own) == 1 else np.concatenate(own))


def _share(state: State, request: Request, path: list[Node]) -> None:
    """Nodes that are there already: they adopt what they lack, or their pages replace own ones."""
    behind = [node for node in path if node.end_page > request.shared_pages]
    for index, component in enumerate(state.components):
        if not component.positional or not behind:
            continue
        duplicates: list[Pages] = []
        table = fresh = request.tables[index]
        for node in behind:
            start = start_of(node, state.stride)
            mine, held = table[start : node.end_page], node.pages[Tier.DEVICE][index]
            if not len(mine) or mine[0] < 0:
                continue
            if held is None:
                attach(state, node, Tier.DEVICE, index, mine)
            else:
                fresh = fresh.copy() if fresh is table else fresh
                fresh[start : node.end_page] = held
                duplicates.append(mine)
        if duplicates:
            request.tables[index] = frozen(fresh)
            state.pools[Tier.DEVICE][index].give_back(np.concatenate(duplicates))
    for node in behind:
        node.hits += 1


def _grow(
    state: State, request: Request, path: list[Node], key: Key, upto: int, made: Sequence[int]
) -> None:
    """New nodes behind the path."""
    covered = path[-1].end_page if path else 0
    if covered < request.shared_pages:
        raise CoreBug(
            f"request {request.id} shares {request.shared_pages} pages, its path {covered}",
            About("request", request.id),
        )
    for end in (*(at for at in _cuts(state, made) if covered < at < upto), upto):
        rows = key.raw[covered * key.stride : end * key.stride]
        first = rows[: key.stride]
        parent = path[-1] if path else state.root
        label = first if path else label_of(key.namespace, first)
        node = new_child(state, parent, rows, label)
        node.hits, node.priority = 1, request.priority
        for index, component in enumerate(state.components):
            mine = request.tables[index][covered:end]
            if component.positional and mine[0] >= 0:
                attach(state, node, Tier.DEVICE, index, mine)
        path.append(node)
        covered = end


def _donate(state: State, request: Request, path: list[Node], made: Sequence[int]) -> None:
    """The nodes that end at the boundaries take over the states there, where they have none."""
    size = state.config.page_size
    boundaries = [node for node in path if node.end_page in made] if made and state.stateful else []
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        for node in boundaries:
            depth = node.end_page * size
            if depth not in request.checkpoint_tokens[index]:
                continue
            track = request.checkpoint_tokens[index].index(depth)
            if node.pages[Tier.DEVICE][index] is None:
                slots = request.tables[index].copy()
                attach(state, node, Tier.DEVICE, index, slots[1 + track : 2 + track].copy())
                slots[1 + track] = -1
                request.tables[index] = frozen(slots)
            request.checkpoint_tokens[index][track] = 0
