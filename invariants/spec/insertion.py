"""What a request computed becomes part of the tree.

A pass or an end of a request makes *boundaries*: depths up to which later requests can reuse the
prefix. Down to the deepest of them the tree has every page, and each page once:

    1. what is not in the tree becomes new nodes,
    2. a node that lacks a kind takes the request's pages of it; where it has them, the request uses
       the node's, and its own are free,
    3. a node that ends at a boundary takes over the state of that depth.

Pages of a window are kept only before a boundary. What lies behind the last boundary stays with the
request.
"""

from collections import Counter

from hicache.core.types import Key

from . import copies
from .cache import Cache
from .eviction import free_kind, free_pages
from .growth import refill_slots, release_before
from .kinds import FULL
from .matching import end_nodes_at, path_to, requires, rows_of
from .records import BOTH, DEVICE, HOST, Hold, Node, Request


def publish(
    cache: Cache, request: Request, key: Key, boundaries: list[int], ending: bool
) -> list[Node]:
    """Inserts what was computed up to these page depths. Returns the path that has it now."""
    made = [depth for depth in boundaries if depth > request.shared]
    if cache.windows or cache.stateful:
        made = _possible(cache, request, key, made, ending)
    upto = made[-1] if made else request.shared
    path = path_to(cache, key, upto)
    end_nodes_at(cache, path, ends_for(cache, made))
    _drop_outside_windows(cache, request, made)
    known = [node for node in path if node.end > request.shared]
    ends = [depth for depth in ends_for(cache, made) if depth < upto]
    fresh = grow_down(cache, path, key, [*ends, upto], request)
    for node in (*known, *fresh):
        node.hits += 1
        _keep_one_copy(cache, request, node)
    _give_states(cache, request, path, made)
    request.shared = upto
    hold_prefix(cache, request.hold, path)
    for kind in range(FULL + 1, len(cache.kinds)):
        release_before(cache, request, kind, upto - cache.kinds[kind].window)
    counts_as_used(cache, request, path, made)
    for node in path:
        node.refused_by_host = set()
    thin_out_states(cache, path)
    if not ending:
        refill_slots(cache, request, request.computed)
    return path


def hold_prefix(cache: Cache, hold: Hold, path: list[Node]) -> None:
    """Holds on device what the end of the path requires."""
    for kind in range(len(cache.kinds)):
        for node in requires(cache, path, kind):
            copies.hold(hold, node, DEVICE, kind)


def counts_as_used(cache: Cache, request: Request, path: list[Node], ends: list[int]) -> None:
    """The request uses the path now: full attention on all of it, the other kinds where one of
    these boundaries, or else the end of the path, requires them."""
    cache.tick += 1
    for node in path:
        node.priority = max(node.priority, request.priority)
        node.failures = 0
        for kind in range(len(cache.kinds)):
            window = cache.kinds[kind].window
            below = [end - node.end for end in ends or [path[-1].end]]
            if cache.order.whole_path or any(0 <= pages < window for pages in below):
                node.last_use[kind] = cache.tick


def ends_for(cache: Cache, depths: list[int]) -> list[int]:
    """Depths at which nodes must end, so that each has a window for all its pages or for none."""
    if not cache.windows and not cache.stateful:
        return []
    starts = {depth - cache.kinds[kind].window for depth in depths for kind in cache.windows}
    return sorted(depth for depth in starts.union(depths) if depth > 0)


def grow_down(
    cache: Cache, path: list[Node], key: Key, ends: list[int], whose: Request | None
) -> list[Node]:
    """Adds nodes with these ends below the path, from where it ends. They have no copies
    yet, and nobody has used them."""
    rows, known = rows_of(key, ends[-1]), len(path)
    for end in ends:
        start, above = (path[-1].end, path[-1]) if path else (0, cache.root)
        if start < end:
            node = cache.new_node(above, key.namespace, rows[start:end])
            above.children.append(node)
            node.inserted = cache.tick
            node.priority = whose.priority if whose is not None else 0
            path.append(node)
    return path[known:]


def _possible(
    cache: Cache, request: Request, key: Key, depths: list[int], ending: bool
) -> list[int]:
    """The boundaries for which the request has every state and every page of the windows. A state
    that a node takes over costs a slot: a request that goes on needs a free page for it, and evicts
    for that. If they do not suffice for all, the deepest are made."""
    ends: dict[int, Node | None] = {}
    for depth in depths:
        path = path_to(cache, key, depth) if cache.stateful else []
        ends[depth] = path[-1] if path and path[-1].end == depth else None
    for kind in () if ending else cache.stateful:
        costs = [_slots_for(cache, request, depth, ends[depth]) or set() for depth in depths]
        wanted = min(sum(kind in cost for cost in costs), cache.available(DEVICE, kind))
        free_pages(cache, DEVICE, kind, wanted - cache.free(DEVICE, kind))
    made: list[int] = []
    spent: Counter[int] = Counter()
    for depth in reversed(depths):
        cost = _slots_for(cache, request, depth, ends[depth])
        if cost is None or not (
            ending or all(spent[kind] < cache.free(DEVICE, kind) for kind in cost)
        ):
            continue
        made.insert(0, depth)
        spent.update(cost)
    return made


def _slots_for(cache: Cache, request: Request, depth: int, node: Node | None) -> set[int] | None:
    """The stateful kinds of which the boundary costs a slot; None if it cannot be made. node: the
    one that ends there, if any."""
    cost = {kind for kind in cache.stateful if node is None or not node.has(DEVICE, kind)}
    tokens = depth * cache.config.page_size
    windows = (
        request.tables[kind][max(0, depth - cache.kinds[kind].window) : depth]
        for kind in cache.windows
    )
    missing = any(tokens not in request.states[kind] for kind in cost)
    return None if missing or any(None in pages for pages in windows) else cost


def _drop_outside_windows(cache: Cache, request: Request, depths: list[int]) -> None:
    """The request gives back the pages of windows that no new boundary requires."""
    for kind in cache.windows:
        window, table = cache.kinds[kind].window, request.tables[kind]
        for at in range(request.shared, max(depths, default=0)):
            if not any(depth - window <= at < depth for depth in depths):
                table[at] = None


def _keep_one_copy(cache: Cache, request: Request, node: Node) -> None:
    for kind in (FULL, *cache.windows):
        here = slice(node.start, node.end)
        mine = [page for page in request.tables[kind][here] if page is not None]
        if mine and not node.has(DEVICE, kind):
            copies.add(cache, node, DEVICE, kind, mine)
        if mine:
            request.tables[kind][here] = node.pages(DEVICE, kind)


def _give_states(cache: Cache, request: Request, path: list[Node], depths: list[int]) -> None:
    """Nodes that end at the new boundaries and have no state take over the request's. It no longer
    has the states of these depths."""
    for kind in cache.stateful:
        _, *slots = request.tables[kind]
        for node in path:
            tokens = node.end * cache.config.page_size
            if node.end not in depths or tokens not in request.states[kind]:
                continue
            at = request.states[kind].index(tokens)
            request.states[kind][at] = 0
            page = slots[at]
            if not node.has(DEVICE, kind) and page is not None:
                copies.add(cache, node, DEVICE, kind, [page])
                request.tables[kind][1 + at] = None


def thin_out_states(cache: Cache, path: list[Node]) -> None:
    """Of more states on a path than there may be, the shallowest go, except those in use, those
    where the tree branches, and the deepest."""
    for kind in (kind for kind in cache.stateful if cache.kinds[kind].states):
        limit, kept = cache.kinds[kind].states, cache.holds()
        having = [node for node in path if node.anywhere(kind)]
        may_go = [
            node
            for node in having[:-1]
            if len(node.children) <= 1
            and not any(node.is_in_use(kept, tier, kind) for tier in BOTH)
        ]
        for node in may_go[: max(0, len(having) - limit)]:
            for tier in (HOST, DEVICE):
                if node.has(tier, kind):
                    free_kind(cache, node, tier, kind)
