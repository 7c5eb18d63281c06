"""Insertion: give the computed pages of a request to the tree, and free duplicates.

    table   |--- shared ---|--------- own ---------|
                           ^ if another request added a node here meanwhile, the table takes its
                             pages and the own pages are freed as duplicates; a node that lacks a
                             component adopts the own pages; the rest becomes new nodes

Pages of a bounded component are kept only where one of the new boundaries requires them. Nodes are
cut there, so that each node holds the component for all of its positions or for none:

    boundary                        b1                    b2
    tree      |-- tombstone --|-- window --|-- tombstone --|-- window --|
"""

from collections.abc import Sequence

import numpy as np

from .errors import About, CoreBug
from .lru import offer
from .node import Node, Request
from .requests import limit_states, make_slot_room, refill_checkpoint_slots, strike, write
from .state import State
from .transfers import lock_required
from .tree import attach, cut, label_of, match, new_child, start_of
from .types import BACKBONE, DEVICE, Key, Pages, kept_rows


def insert(
    state: State, request: Request, key: Key, boundaries: list[int], leaving: bool
) -> list[Node]:
    """Insert the computed pages up to these boundaries, and lock what the last one requires.

    boundaries: depths in pages, ascending. leaving: the request ends, so it needs no slots for
    states any more. Returns the path of nodes that now has the pages. The request may get new
    tables; the old arrays do not change. A boundary is left out if its states cannot be given to
    a node or if a window is incomplete. Pages after the last boundary stay the request's own.
    """
    if request.receipt is None:
        raise CoreBug(f"request {request.id} has no receipt to lock with")
    new = [pages for pages in boundaries if pages > request.shared_pages]
    if new and not state.every_end_is_live:
        new = _with_all_at_hand(state, request, key, new, leaving)
    upto = new[-1] if new else request.shared_pages
    path = match(state, key, upto, request.shared_node)
    cuts = [] if state.every_end_is_live else _cuts(state, new)
    for at in cuts:
        cut(state, path, at)
    if not state.every_end_is_live:
        _give_back_unneeded(state, request, new)
    _share(state, request, path)
    if (path[-1].end_page if path else 0) < upto:
        _grow(state, request, path, key, upto, cuts)
    if state.stateful:
        _donate(state, request, path, new)
    since, request.shared_pages = request.shared_pages, upto
    request.shared_node = path[-1] if path else None
    if (path[-1].end_page if path else 0) != upto:
        raise CoreBug(
            f"request {request.id}: a path to {path[-1:]} holds its {upto} pages",
            About("request", request.id),
        )
    lock_required(state, request.receipt, path, since)
    use(state, request, path, new)
    for node in path:
        node.host_refused = 0
    if not state.every_end_is_live:
        _offer_unlocked(state, path, since)
        limit_states(state, path)
        if not leaving:
            refill_checkpoint_slots(state, request, request.computed_tokens)
    return path


def _with_all_at_hand(
    state: State, request: Request, key: Key, new: list[int], leaving: bool
) -> list[int]:
    """The boundaries that can be made. First tries to free as many slots as nodes will take. With
    states, a node that extends past a boundary is split there."""
    nodes: list[Node | None] = []  # that end at the boundaries
    for pages in new:
        path = match(state, key, pages, request.shared_node) if state.stateful else []
        nodes.append(path[-1] if path and path[-1].end_page == pages else None)
    needs = [_needs(state, request, node, pages) for node, pages in zip(nodes, new, strict=True)]
    counts = [
        sum([item[index] for item in needs if item is not None])
        for index in range(len(state.components))
    ]
    if not leaving and make_slot_room(state, counts):
        needs = [  # the eviction may have removed a state that was counted
            _needs(state, request, node, pages) for node, pages in zip(nodes, new, strict=True)
        ]
    return _ready(state, new, needs, leaving)


def _offer_unlocked(state: State, path: list[Node], since: int) -> None:
    """Queue for eviction the copies after page `since` that the last boundary can spare: they are
    not locked."""
    for node in path:
        if node.end_page > since:
            for index in range(BACKBONE + 1, len(state.components)):
                offer(state.queues, state.eviction, node, DEVICE, index)


def use(state: State, request: Request, path: list[Node], boundaries: Sequence[int] = ()) -> None:
    """Record that the request uses the path now: the whole backbone, and of each other component
    what the boundaries require, or the end of the path if there are none."""
    state.tick += 1
    tick, whole_path, priority = state.tick, state.eviction.whole_path, request.priority
    touched = state.touched
    for node in path:
        node.last_use[BACKBONE] = tick
        if node.priority < priority:
            node.priority = priority
        touched[node.id] = node
    if state.beliefs_since:
        for node in path:
            node.store_failures = 0
    for index in range(BACKBONE + 1, len(state.components)):
        if whole_path:
            for node in path:
                node.last_use[index] = tick
            continue
        for end in boundaries or [path[-1].end_page if path else 0]:
            for node in reversed(path):
                if end - node.end_page >= state.components[index].window_pages:
                    break
                if node.end_page <= end:
                    node.last_use[index] = tick


def _ready(
    state: State, boundaries: list[int], needs: list[list[int] | None], leaving: bool
) -> list[int]:
    """The boundaries that can be made with the slots that are free. The deepest come first."""
    spare = [len(boundaries) if leaving else pool.free for pool in state.pools[DEVICE]]
    ready = []
    for pages, needed in zip(reversed(boundaries), reversed(needs), strict=True):
        if needed is not None and all(
            have >= count for have, count in zip(spare, needed, strict=True)
        ):
            ready.append(pages)
            spare = [have - count for have, count in zip(spare, needed, strict=True)]
    return ready[::-1]


def _needs(state: State, request: Request, node: Node | None, pages: int) -> list[int] | None:
    """By component, the slots that the node of this boundary takes over. node: the existing node,
    or None. Returns None if the boundary cannot be made, because a state is neither in the node nor
    in a checkpoint slot, or because a window is incomplete."""
    needs = [0] * len(state.components)
    depth = pages * state.config.page_size
    for index, component in enumerate(state.components):
        if component.positional or (node and node.pages[DEVICE][index] is not None):
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


def _cuts(state: State, boundaries: Sequence[int]) -> list[int]:
    """Page depths at which nodes must end, ascending: the boundaries and the starts of their
    windows."""
    starts = [
        pages - component.window_pages
        for component in state.components
        if component.positional
        for pages in boundaries
    ]
    return sorted({at for at in (*boundaries, *starts) if at > 0})


def _give_back_unneeded(state: State, request: Request, boundaries: Sequence[int]) -> None:
    """Free the request's own pages of bounded components that no boundary requires."""
    for index, component in enumerate(state.components):
        if index == BACKBONE or not component.positional:
            continue
        start, gaps = request.shared_pages, []
        for pages in boundaries:
            gaps.append(slice(start, max(start, pages - component.window_pages)))
            start = pages
        _give_back_at(state, request, index, [gap for gap in gaps if gap.start < gap.stop])


def _give_back_at(state: State, request: Request, index: int, gaps: list[slice]) -> None:
    """Free the request's own pages of a component at these positions."""
    table = request.tables[index]
    own = [part[part >= 0] for part in (table[gap] for gap in gaps)]
    if not any(map(len, own)):
        return
    if gaps[0].start < request.shared_pages:
        raise CoreBug(f"request {request.id} gives back pages of nodes, from {gaps[0].start} on")
    strike(request, index, gaps)
    state.pools[DEVICE][index].give_back(own[0] if len(own) == 1 else np.concatenate(own))


def _share(state: State, request: Request, path: list[Node]) -> None:
    """For nodes that exist already: a node adopts the pages that it lacks; elsewhere the node's
    pages replace the request's own pages, which are freed."""
    behind = [node for node in path if node.end_page > request.shared_pages]
    for index, component in enumerate(state.components if behind else ()):
        if not component.positional:
            continue
        duplicates: list[Pages] = []
        replaced: list[tuple[int, Pages]] = []
        table = request.tables[index]
        for node in behind:
            start = start_of(node, state.stride)
            mine, page = table[start : node.end_page], node.pages[DEVICE][index]
            if not len(mine) or mine[0] < 0:
                continue
            if page is None:
                attach(state, node, DEVICE, index, mine)
            else:
                replaced.append((start, page))
                duplicates.append(mine)
        if duplicates:
            write(request, index, replaced)
            state.pools[DEVICE][index].give_back(np.concatenate(duplicates))
    for node in behind:
        node.hits += 1


def _grow(
    state: State, request: Request, path: list[Node], key: Key, upto: int, cuts: Sequence[int]
) -> None:
    """Append new nodes to the path, up to page `upto`, that end at the cuts."""
    covered = path[-1].end_page if path else 0
    if covered < request.shared_pages:
        raise CoreBug(
            f"request {request.id} shares {request.shared_pages} pages, its path {covered}",
            About("request", request.id),
        )
    for end in [*[at for at in cuts if covered < at < upto], upto] if cuts else (upto,):
        rows = kept_rows(key.raw, covered * key.stride, end * key.stride)
        first = bytes(rows[: key.stride])
        parent = path[-1] if path else state.root
        label = first if path else label_of(key.namespace, first)
        if label in parent.children:
            raise CoreBug(f"{parent} has a child already where request {request.id} adds one")
        node = new_child(state, parent, rows, label)
        node.hits, node.priority = 1, request.priority
        for index, component in enumerate(state.components):
            mine = request.tables[index][covered:end]
            if index == BACKBONE or (component.positional and mine[0] >= 0):
                attach(state, node, DEVICE, index, mine)
        path.append(node)
        covered = end


def _donate(state: State, request: Request, path: list[Node], boundaries: Sequence[int]) -> None:
    """Give states to the nodes that end at the boundaries and have none."""
    size = state.config.page_size
    ends = [node for node in path if node.end_page in boundaries]
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        for node in ends:
            depth = node.end_page * size
            if depth not in request.checkpoint_tokens[index]:
                continue
            buffer = request.checkpoint_tokens[index].index(depth)
            if node.pages[DEVICE][index] is None:
                slot = request.tables[index][1 + buffer : 2 + buffer]
                strike(request, index, [slice(1 + buffer, 2 + buffer)])
                attach(state, node, DEVICE, index, slot)
            request.checkpoint_tokens[index][buffer] = 0
