"""What a request computed becomes part of the tree.

A pass or an end of a request makes *boundaries*: depths up to which later requests can reuse the
prefix. The tree gets the pages up to the deepest of them:

    1. where a node has them already, the request's own pages are duplicates and are freed,
    2. a node that lacks a kind adopts the request's pages of it,
    3. what is not in the tree becomes new nodes,
    4. a node that ends at a boundary takes over the state of that depth.

Pages of a window are kept only before a boundary. What lies behind the last boundary stays with the
request.
"""

from __future__ import annotations

from hicache.core.types import Key

from . import copies, marks
from .cache import Cache
from .eviction import evict_device, note_lost, tombstone
from .growth import let_go_above, refill_slots
from .kinds import FULL
from .matching import cut, match, required, rows_of
from .records import DEVICE, HOST, Hold, Node, Request


def insert(
    cache: Cache, request: Request, key: Key, boundaries: list[int], ending: bool
) -> list[Node]:
    """Inserts what was computed up to these page depths. Returns the path that has it now."""
    new = [depth for depth in boundaries if depth > request.shared]
    if cache.windows or cache.stateful:
        new = _that_can_be_made(cache, request, key, new, ending)
    upto = new[-1] if new else request.shared
    path = match(cache, key, upto)
    for depth in cuts(cache, new):
        cut(cache, path, depth)
    _drop_outside_windows(cache, request, new)
    _share(cache, request, path)
    visited = [node for node in path if node.end > request.shared]
    _append(cache, request, path, key, upto, new)
    _give_states(cache, request, path, new)
    request.shared = upto
    hold_required(cache, request.hold, path)
    if path:
        for kind in range(FULL + 1, len(cache.kinds)):
            let_go_above(cache, request, kind, path[-1].end - cache.kinds[kind].window)
    use(cache, request, path, new)
    marks.visited(cache, visited, new or [upto])
    for node in path:
        node.refused_by_host = set()
    limit_states(cache, path)
    if not ending:
        refill_slots(cache, request, request.computed)
    return path


def hold_required(cache: Cache, hold: Hold, path: list[Node]) -> None:
    """Holds on device what the end of the path requires."""
    for kind in range(len(cache.kinds)):
        for node in required(cache, path, kind):
            copies.hold(hold, node, DEVICE, kind)


def use(cache: Cache, request: Request, path: list[Node], ends: list[int] | None = None) -> None:
    """The request uses the path now: full attention on all of it, the other kinds where one of
    these boundaries, or else the end of the path, requires them."""
    cache.tick += 1
    ends = ends or [path[-1].end if path else 0]
    whole = cache.config.eviction_policy == "lru_path"
    for node in path:
        node.priority = max(node.priority, request.priority)
        node.failures = 0
        for kind, one in enumerate(cache.kinds):
            if whole or any(0 <= end - node.end < one.window for end in ends) or kind == FULL:
                node.last_use[kind] = cache.tick


def _that_can_be_made(
    cache: Cache, request: Request, key: Key, depths: list[int], ending: bool
) -> list[int]:
    """The boundaries for which the request has every state and every page of the windows. A state
    that a node takes over costs a slot: a request that goes on needs a free page for it, and evicts
    for that. The deepest come first."""
    nodes: dict[int, Node | None] = {}
    for depth in depths:
        path = match(cache, key, depth) if cache.stateful else []
        nodes[depth] = path[-1] if path and path[-1].end == depth else None
    spare = dict.fromkeys(cache.stateful, len(depths))
    if not ending:
        costs = [_slots_needed(cache, request, nodes[depth], depth) for depth in depths]
        for kind in cache.stateful:
            free = cache.free(DEVICE, kind)
            short = sum(cost[kind] for cost in costs if cost is not None) - free
            evict_device(cache, kind, min(short, cache.available(DEVICE, kind) - free))
        spare = {kind: cache.free(DEVICE, kind) for kind in cache.stateful}
    made = []
    for depth in reversed(depths):
        cost = _slots_needed(cache, request, nodes[depth], depth)
        if cost is not None and all(spare[kind] >= cost[kind] for kind in spare):
            spare = {kind: spare[kind] - cost[kind] for kind in spare}
            made.append(depth)
    return made[::-1]


def _slots_needed(
    cache: Cache, request: Request, node: Node | None, depth: int
) -> dict[int, int] | None:
    """By kind, the slots that the node of this boundary takes over; None if it cannot be made.
    node: the one that ends there, if any."""
    tokens, cost = depth * cache.config.page_size, {}
    for kind in cache.stateful:
        has = node is not None and node.has(DEVICE, kind)
        if not has and tokens not in request.states[kind]:
            return None
        cost[kind] = int(not has)
    for kind in cache.windows:
        if None in request.tables[kind][max(0, depth - cache.kinds[kind].window) : depth]:
            return None
    return cost


def cuts(cache: Cache, depths: list[int]) -> list[int]:
    """Depths at which nodes must end, so that each has a window for all its pages or for none."""
    if not cache.windows and not cache.stateful:
        return []
    starts = [
        depth - cache.kinds[kind].window for depth in depths for kind in (FULL, *cache.windows)
    ]
    return sorted({depth for depth in (*depths, *starts) if depth > 0})


def _drop_outside_windows(cache: Cache, request: Request, depths: list[int]) -> None:
    """The request gives back the pages of windows that no new boundary requires."""
    for kind in cache.windows:
        table, start = request.tables[kind], request.shared
        for depth in depths:
            until = max(start, depth - cache.kinds[kind].window)
            table[start:until] = [None] * (until - start)
            start = depth


def _share(cache: Cache, request: Request, path: list[Node]) -> None:
    """Nodes that exist adopt what they lack; where they have it, the request uses theirs from now
    on, and its own pages are free."""
    behind = [node for node in path if node.end > request.shared]
    for kind in (FULL, *cache.windows):
        for node in behind:
            table, held = request.tables[kind], node.copies[DEVICE][kind]
            mine = [page for page in table[node.start : node.end] if page is not None]
            if mine and held is None:
                copies.attach(cache, node, DEVICE, kind, mine)
            elif mine and held is not None:
                table[node.start : node.end] = held
    for node in behind:
        node.hits += 1


def _append(
    cache: Cache, request: Request, path: list[Node], key: Key, upto: int, depths: list[int]
) -> None:
    """Adds new nodes below the path, up to page `upto`."""
    rows, start = rows_of(key, upto), path[-1].end if path else 0
    for end in (*(depth for depth in cuts(cache, depths) if start < depth < upto), upto):
        start = path[-1].end if path else 0
        if start >= end:
            return
        above = path[-1] if path else cache.root
        node = Node(above, key.namespace, rows[start:end], len(cache.kinds))
        above.children.append(node)
        marks.inserted(cache, node)
        node.hits, node.priority = 1, request.priority
        for kind in (FULL, *cache.windows):
            mine = [page for page in request.tables[kind][start:end] if page is not None]
            if mine:
                copies.attach(cache, node, DEVICE, kind, mine)
        path.append(node)


def _give_states(cache: Cache, request: Request, path: list[Node], depths: list[int]) -> None:
    """Nodes that end at the new boundaries and have no state take over the request's."""
    for kind in cache.stateful:
        for node in path:
            tokens = node.end * cache.config.page_size
            if node.end not in depths or tokens not in request.states[kind]:
                continue
            slot = request.states[kind].index(tokens)
            page = request.tables[kind][1 + slot]
            if not node.has(DEVICE, kind) and page is not None:
                copies.attach(cache, node, DEVICE, kind, [page])
                request.tables[kind][1 + slot] = None
            request.states[kind][slot] = 0


def limit_states(cache: Cache, path: list[Node]) -> None:
    """Frees the shallowest states of a path that has too many, except those in use, those where the
    tree branches, and the deepest."""
    for kind in cache.stateful:
        limit = cache.kinds[kind].states
        having = [node for node in path if node.anywhere(kind)]
        excess = len(having) - limit if limit else 0
        for node in having[:-1]:
            held = cache.held()
            in_use = any(node.is_held(held, tier, kind) for tier in (DEVICE, HOST))
            if excess <= 0 or in_use or len(node.children) > 1:
                continue
            excess -= 1
            before = cache.hopeful()
            for tier in (HOST, DEVICE):
                if node.has(tier, kind):
                    tombstone(cache, node, tier, kind)
            note_lost(cache, before)
