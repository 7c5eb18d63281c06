"""The radix tree: its shape, its live boundaries, and matching (see `core`).

Every change to the pages or the place of a node is made here, so that the ledger, the counts of the
parents and the eviction queues agree after each call. Decides nothing; see `insertion`, `eviction`.
`child_distances` counts the children of a node by their distance from a live boundary, and
`children_in_reach` lists those that end within the widest window, so a change costs what it
concerns, however many children there are.
"""

from collections.abc import Iterator
from heapq import heappush

import numpy as np

from .actions import KvRemoved, KvStored
from .errors import About, CoreBug
from .lru import offer
from .node import (
    FAR,
    NONE,
    NOTHING,
    STORE,
    Node,
    Segment,
    count_child,
    is_locked,
    own_locks,
    set_pages,
)
from .state import State, dequeue, follow_split, follow_truncation
from .types import (
    BACKBONE,
    HOST,
    NO_PAGES,
    TIERS,
    Key,
    Pages,
    Rows,
    chain_digests,
    kept,
    kept_rows,
    root_digest,
)


def label_of(namespace: str, row: bytes) -> bytes:
    """The label of a child of the root. Rows of different namespaces have different labels."""
    return (namespace + "\0").encode() + row if namespace else row


def span(node: Node, stride: int) -> int:
    """Pages of the node's run."""
    return len(node.key) // stride


def start_of(node: Node, stride: int) -> int:
    """The page at which the node's run begins."""
    return node.end_page - span(node, stride)


def path_to(node: Node) -> list[Node]:
    """The nodes from the top down to this node, without the root."""
    path: list[Node] = []
    above = node.parent
    while above is not None:
        path.append(node)
        node, above = above, above.parent
    path.reverse()
    return path


def nodes_below(root: Node) -> Iterator[Node]:
    """Every node below `root`, parents before children."""
    stack = list(root.children.values())
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())


def new_child(state: State, parent: Node, key: Rows, label: bytes) -> Node:
    """Add a node without pages below `parent`. key: its rows."""
    if not key or len(key) % state.stride:
        raise CoreBug(f"{parent} cannot take a child of {len(key)} bytes")
    end = parent.end_page + len(key) // state.stride
    node = Node(state.next_node, parent, key, label, end, len(state.components))
    node.inserted = state.tick
    if state.config.ttl_periods:
        heappush(state.unused, (0, node.id, node))
    if state.every_end_is_live:
        node.live_distance = 0
    state.next_node += 1
    if parent.children is NOTHING:
        parent.children = {}
    parent.children[label] = node
    if state.widest_window_pages:
        note_span(state, node)
    state.touched[node.id] = node
    state.touched[parent.id] = parent
    return node


def split(state: State, node: Node, at: int) -> Node:
    """Split a node `at` pages from its start. Returns the new upper half; `node` becomes the lower.

    Pages, locks and segments go to the half that their tokens belong to.
    """
    parent, stride = node.parent, state.stride
    if parent is None or not 0 < at < span(node, stride):
        raise CoreBug(f"{node} cannot be split at {at}", About("node", node.id))
    cut = at * stride
    begin_split(state, node)
    rows = node.key
    upper = new_child(state, parent, kept_rows(rows, 0, cut), node.label)
    node.key = kept_rows(rows, cut, len(rows))
    node.label = bytes(rows[cut : cut + stride])
    node.parent = upper
    upper.children = {node.label: node}
    upper.last_use, upper.hits, upper.host_refused = (
        node.last_use.copy(),
        node.hits,
        node.host_refused,
    )
    upper.inserted, upper.priority = node.inserted, node.priority
    if node.digests is not None:
        upper.digests, node.digests = node.digests[:at], node.digests[at:]
    for tier in (0, 1):
        for index, component in enumerate(state.components):
            page = node.pages[tier][index]
            if page is None:
                continue
            above, below = component.split(page, at)
            if (0 if above is None else len(above)) + (0 if below is None else len(below)) != len(
                page
            ):
                raise CoreBug(f"{node}: a split at {at} loses pages of component {index}")
            set_pages(node, tier, index, below)
            set_pages(upper, tier, index, above)
            if above is not None:
                state.pools[tier][index].move(above, upper.id)
                for receipt in node.locks[tier][index].values():
                    own_locks(upper, tier)[index][receipt.id] = receipt
                    receipt.locked[index].append((upper, tier))
        count_child(upper, tier, int(node.pages[tier][BACKBONE] is not None))
    if upper.end_page + span(node, stride) != node.end_page:
        raise CoreBug(f"{node} does not begin where {upper} ends")
    _split_segments(state, node, upper, at)
    if state.beliefs_since:
        follow_split(state, upper, node)
    end_split(state, upper, node)
    state.touched[node.id] = node
    return upper


def _split_segments(state: State, node: Node, upper: Node, at: int) -> None:
    for segment in node.segments:
        component = state.components[segment.component]
        source_above, source_below = component.split(segment.source, at)
        target_above, target_below = (
            (NO_PAGES, NO_PAGES)
            if segment.transfer.kind is STORE
            else component.split(segment.target, at)
        )
        if source_above is None or target_above is None:
            continue
        if source_below is None or target_below is None:
            raise CoreBug(
                f"a split moved a segment of {node} away from its lower half",
                About("node", node.id),
            )
        if len(source_above) != at or len(target_above) not in (at, len(segment.target)):
            raise CoreBug(f"{upper} gets {len(source_above)} pages of a segment, for {at}")
        above = Segment(segment.transfer, upper, segment.component, source_above, target_above)
        segment.source, segment.target = source_below, target_below
        segments = segment.transfer.segments
        segments.insert(segments.index(segment), above)
        upper.segments += (above,)


def attach(state: State, node: Node, tier: int, index: int, pages: Pages) -> None:
    """Give the node these pages of a component on the tier. The pages must be owned or reserved.

    The copy is filed for host eviction at once. It is filed for device eviction when its lock ends
    or when the caller offers it: most copies are locked next, which would make an entry stale.
    """
    if node.pages[tier][index] is not None or node.parent is None:
        raise CoreBug(
            f"{node} cannot take pages on {TIERS[tier].name.lower()}", About("node", node.id)
        )
    state.pools[tier][index].cache(pages, node.id)
    set_pages(node, tier, index, kept(pages))
    state.touched[node.id] = node
    if index == BACKBONE:
        if len(pages) * state.stride != len(node.key):
            raise CoreBug(f"{node} takes {len(pages)} pages for {len(node.key)} bytes of its key")
        count_child(node.parent, tier, 1)
        state.touched[node.parent.id] = node.parent
        if state.config.kv_events:
            state.out.append(KvStored(TIERS[tier], digests_of(state, node)))
    elif node.pages[1 - tier][index] is None:
        changed(state, node, index)
    if node.pages[HOST][index] is not None:
        offer(state.queues, state.eviction, node, HOST, index)
    if index != BACKBONE and node.pages[HOST][BACKBONE] is not None:
        offer(state.queues, state.eviction, node, HOST, BACKBONE)


def detach(state: State, node: Node, tier: int, index: int) -> Pages:
    """Take the pages of a component on the tier from the node and return them. The caller frees
    them, and offers the host copies that the node keeps."""
    pages, parent = node.pages[tier][index], node.parent
    if pages is None or parent is None or node.locks[tier][index]:
        raise CoreBug(
            f"{node} cannot lose its pages on {TIERS[tier].name.lower()}", About("node", node.id)
        )
    set_pages(node, tier, index, None)
    state.touched[node.id] = node
    if index == BACKBONE:
        count_child(parent, tier, -1)
        if parent.with_pages[tier] < 0:
            raise CoreBug(f"{parent} counts fewer than no children with pages")
        state.touched[parent.id] = parent
        if state.config.kv_events:
            state.out.append(KvRemoved(TIERS[tier], digests_of(state, node)))
        offer(state.queues, state.eviction, parent, tier, BACKBONE)
    elif node.pages[1 - tier][index] is None:
        changed(state, node, index)
    return pages


def truncate(state: State, node: Node, tier: int, keep: int) -> Pages:
    """Shorten a node to its first `keep` pages and return the pages cut off. The node must have no
    children, be on one tier only and have no component but the backbone."""
    pages = node.pages[tier][BACKBONE]
    if pages is None or not 0 < keep < len(pages):
        raise CoreBug(f"{node} cannot be cut to {keep} pages", About("node", node.id))
    if state.config.kv_events:
        state.out.append(KvRemoved(TIERS[tier], digests_of(state, node)[keep:]))
    if node.digests is not None:
        node.digests = node.digests[:keep]
    if state.stateful:
        follow_truncation(state, node)
    node.key = kept_rows(node.key, 0, keep * state.stride)
    node.end_page -= len(pages) - keep
    set_pages(node, tier, BACKBONE, kept(pages[:keep]))
    if state.widest_window_pages:
        note_span(state, node)
    state.touched[node.id] = node
    offer(state.queues, state.eviction, node, tier, BACKBONE)
    return pages[keep:]


def unlink(state: State, node: Node) -> None:
    """Remove a node from the tree. It must have no children, segments or locks."""
    parent = node.parent
    if parent is None or node.children or node.segments or is_locked(node):
        raise CoreBug(f"{node} cannot be removed", About("node", node.id))
    if parent.children.pop(node.label, None) is not node:
        raise CoreBug(f"{node} is not the child of {parent} under its label")
    parent.children_in_reach.pop(node.id, None)
    if node.store_place:
        dequeue(state, node)
    node.parent = None
    state.touched[node.id] = node
    state.touched[parent.id] = parent


def digests_of(state: State, node: Node) -> tuple[bytes, ...]:
    """The digests of the node's pages (SHA-256 chain from its namespace), computed once per
    page."""
    missing: list[Node] = []
    above: Node = node
    while above.digests is None and above.parent is not None:
        missing.append(above)
        above = above.parent
    for below in reversed(missing):
        if below.parent is None or below.parent.digests is None:
            namespace = below.label[: -state.stride - 1].decode()
            parent_digest = root_digest(namespace)
        else:
            parent_digest = below.parent.digests[-1]
        below.digests = tuple(chain_digests(parent_digest, below.key, state.stride))
        if len(below.digests) != span(below, state.stride):
            raise CoreBug(f"{below} has {len(below.digests)} digests")
    return node.digests or ()


def changed(state: State, node: Node, index: int) -> None:
    """The component appeared at the node or left its last tier: update which of the ends at and
    below the node are live boundaries."""
    if state.every_end_is_live or index == BACKBONE:
        return
    window = state.components[index].window_pages
    came = is_there(node, index)
    pairs = [(node, 0)]
    for above, distance in pairs:
        if distance + 1 >= window or not (came or distance + _nearest_below(above) < window):
            continue
        for child in above.children_in_reach.values():
            depth = distance + child.end_page - above.end_page
            if depth < window and (came or depth + child.live_distance < window):
                pairs.append((child, depth))
    for below, _ in reversed(pairs):
        live = came and is_live(state, below)
        if live != (below.live_distance == 0):
            _set(state, below, 0 if live else _nearest_below(below))


def is_there(node: Node, index: int) -> bool:
    """Whether the component is at the node, on any tier."""
    return node.pages[0][index] is not None or node.pages[1][index] is not None


def is_live(state: State, node: Node) -> bool:
    """Whether every component is valid at the node's end. Reads the path above the node."""
    for index, component in enumerate(state.components):
        above = node
        while (
            node.end_page - above.end_page < component.window_pages
            and above.parent is not None
            and index != BACKBONE
        ):
            if not is_there(above, index):
                return False
            above = above.parent
    return True


def note_span(state: State, node: Node) -> None:
    """The node has a new parent or a new length: update its parent's `children_in_reach`."""
    parent = node.parent
    if parent is not None and node.end_page - parent.end_page < state.widest_window_pages:
        if parent.children_in_reach is NOTHING:
            parent.children_in_reach = {}
        parent.children_in_reach[node.id] = node


def begin_split(state: State, node: Node) -> None:
    """The node will be split: remove it from what its parent counts."""
    if not state.every_end_is_live and node.parent is not None:
        _count(state, node, node.live_distance, -1)
        node.parent.children_in_reach.pop(node.id, None)


def end_split(state: State, upper: Node, lower: Node) -> None:
    """The node was split and its pages divided: count both halves."""
    if state.every_end_is_live:
        upper.live_distance = 0
        return
    _count(state, lower, lower.live_distance, 1)
    note_span(state, lower)
    upper.live_distance = 0 if is_live(state, upper) else _nearest_below(upper)
    _count(state, upper, upper.live_distance, 1)
    for tier in (0, 1):
        for index in range(1, len(state.components)):
            if upper.pages[tier][index] is not None:
                offer(state.queues, state.eviction, upper, tier, index)
    _refresh(state, upper.parent)


def _set(state: State, node: Node, near: int) -> None:
    _count(state, node, node.live_distance, -1)
    if node.parent is None or near < 0:
        raise CoreBug(f"{node} is to be {near} pages from a live boundary")
    before, node.live_distance = node.live_distance, near
    _count(state, node, near, 1)
    state.touched[node.id] = node
    if near == NONE:
        state.dead.append(node)
    for index, component in enumerate(state.components):
        was = before >= component.window_pages
        if was != (near >= component.window_pages):
            # a node without an entry is no candidate; it is offered when its lock ends
            for queue in state.queues[index]:
                if node.queued & queue.bits[was]:
                    offer(state.queues, state.eviction, node, queue.tier, index)
    _refresh(state, node.parent)


def _refresh(state: State, node: Node | None) -> None:
    """The distance of a child changed: update the node and the nodes above it."""
    if node is not None and node.parent is not None and node.live_distance:
        near = _nearest_below(node)
        if near != node.live_distance:
            _set(state, node, near)


def _nearest_below(node: Node) -> int:
    return min(node.child_distances, default=NONE)


def _count(state: State, node: Node, near: int, by: int) -> None:
    """Add `by` to the number of children that the parent counts at this child's distance."""
    parent = node.parent
    if near == NONE or parent is None:
        return
    distance = near + node.end_page - parent.end_page
    if distance >= state.widest_window_pages:
        distance = FAR
    left = parent.child_distances.get(distance, 0) + by
    if left < 0:
        raise CoreBug(f"{parent} counts {left} children at a distance of {distance} pages")
    if left:
        if parent.child_distances is NOTHING:
            parent.child_distances = {}
        parent.child_distances[distance] = left
    else:
        del parent.child_distances[distance]


_WORDS = 1 << 12  # compared at once


def walk(
    state: State, key: Key, limit: int, known: Node | None = None
) -> tuple[list[Node], Node | None, int]:
    """Follow the first `limit` pages of the key down the tree.

    Returns the nodes that match as a whole, then a node that matches in part (or None) and how many
    of its pages match. known: a node that is known to match with its whole path, at most `limit`
    pages deep; it is of no use once it has left the tree. Changes nothing.
    """
    raw, stride = key.raw, key.stride
    stop = min(len(raw), limit * stride)
    if known is not None and known.end_page > limit:
        raise CoreBug(f"{known} goes beyond the {limit} pages that are looked for")
    if known is None or known.parent is None:
        path: list[Node] = []
        node, position = state.root, 0
    else:
        path = path_to(known)
        node, position = known, known.end_page * stride
    while position < stop and node.children:
        label = raw[position : position + stride]
        child = node.children.get(label if position else label_of(key.namespace, label))
        if child is None:
            break
        after = position + len(child.key)
        if after > stop or not raw.startswith(child.key, position):
            return path, child, _shared_pages(raw, position, stop, child.key, stride)
        path.append(child)
        node, position = child, after
    return path, None, 0


def _shared_pages(raw: bytes, start: int, stop: int, other: Rows, stride: int) -> int:
    """How many leading rows of `raw`, from byte `start` to `stop`, and of another run are equal."""
    words = min(stop - start, len(other)) // 8
    ours = np.frombuffer(raw, dtype="<i8", count=words, offset=start)
    theirs = np.frombuffer(other, dtype="<i8", count=words)
    for first in range(0, words, _WORDS):
        differs = ours[first : first + _WORDS] != theirs[first : first + _WORDS]
        at = int(differs.argmax())
        if differs[at]:
            return (first + at) * 8 // stride
    return words * 8 // stride


def match(state: State, key: Key, limit: int, known: Node | None = None) -> list[Node]:
    """The path of nodes for the longest known prefix of at most `limit` pages. Splits the last node
    if only a part of it matches."""
    path, partial, pages = walk(state, key, limit, known)
    if partial is not None:
        path.append(split(state, partial, pages))
    return path


def cut(state: State, path: list[Node], at: int) -> None:
    """Split a node of the path so that one ends at page `at`, if the path goes that far."""
    for index in range(len(path) - 1, -1, -1):
        node = path[index]
        if at >= node.end_page:
            return
        start = start_of(node, state.stride)
        if start < at:
            path.insert(index, split(state, node, at - start))
            return


def cut_windows(state: State, path: list[Node]) -> None:
    """Split nodes so that the window of each bounded component before the path's end begins at the
    start of a node. Then a lock covers no more than the window."""
    for index in state.bounded:
        if path:
            cut(state, path, path[-1].end_page - state.components[index].window_pages)


def anchors(state: State, path: list[Node], part: int = 0) -> tuple[int, int, tuple[int, ...]]:
    """How many leading nodes of a path lead to its device anchor and to its best anchor, and by
    component to the depth. With `part`, the match ends inside the last node, and only the first
    `part` pages of that node count."""
    if len(state.components) == 1:
        device = best = len(path)
        for depth in range(best, 0, -1):
            on_device, on_host = path[depth - 1].pages
            if on_device[BACKBONE] is None:
                device = depth - 1
                if on_host[BACKBONE] is None:
                    best = device
        return device, best, (best,)
    ends = _ends(path, part)
    depths = []
    for index, component in enumerate(state.components):
        # a state is at its node's end, which a match that ends inside it does not reach
        upto = len(path) - (bool(part) and not component.positional)
        depths.append(_deepest(path, ends, upto, index, component.window_pages, False))
    best = least = min(depths)
    if least < max(depths):
        best = _common(state, path, ends, least, False)
    device = _common(state, path, ends, best, True)
    if not 0 <= device <= best <= least:
        raise CoreBug(f"anchors {device} on device and {best} anywhere, with depths {depths}")
    return device, best, tuple(depths)


def deepest_on(state: State, path: list[Node], tier: int, part: int = 0) -> int:
    """How many leading nodes of a path lead to the deepest one at which every component is valid on
    the tier alone. part: see `anchors`."""
    ends = _ends(path, part)
    upto, before = len(path), -1
    if part and not all(component.positional for component in state.components):
        upto -= 1  # a state is at its node's end
    while upto != before:
        before = upto
        for index, component in enumerate(state.components):
            for depth in range(upto, 0, -1):
                if ends[upto] - ends[depth] >= component.window_pages:
                    break
                if path[depth - 1].pages[tier][index] is None:
                    upto = depth - 1
    return upto


def _common(state: State, path: list[Node], ends: list[int], upto: int, on_device: bool) -> int:
    """The deepest of the first `upto` nodes at which every component is valid."""
    before = -1
    while upto != before:
        before = upto
        for index, component in enumerate(state.components):
            upto = _deepest(path, ends, upto, index, component.window_pages, on_device)
    return upto


def _deepest(
    path: list[Node], ends: list[int], upto: int, index: int, window: int, on_device: bool
) -> int:
    """The deepest of the first `upto` nodes at which one component is valid, on device or anywhere.
    Goes from the deepest node up, so it need not read the nodes above the window."""
    for depth in range(upto, 0, -1):
        node = path[depth - 1]
        if ends[upto] - ends[depth] >= window:
            break
        if node.pages[0][index] is None and (on_device or node.pages[1][index] is None):
            upto = depth - 1
    return upto


def _ends(path: list[Node], part: int) -> list[int]:
    """Page depths: 0 for the empty path, then the end of each node. With `part`, the last depth is
    that of the match inside the last node."""
    ends = [0, *[node.end_page for node in path]]
    if part:
        ends[-1] = ends[-2] + part
    return ends


def probe(
    state: State, key: Key, limit: int, known: Node | None = None
) -> tuple[int, int, tuple[int, ...], Node | None]:
    """What a match of the first `limit` pages would find: pages on device, pages after those on
    host, by component the depth in pages up to which it is valid, and the deepest node that matches
    as a whole. known: see `walk`. Changes nothing."""
    path, partial, part = walk(state, key, limit, known)
    deepest = path[-1] if path else None
    if partial is not None:
        path.append(partial)
    ends = _ends(path, part)
    device, best, depths = anchors(state, path, part)
    on_device = ends[device]
    return on_device, ends[best] - on_device, tuple([ends[depth] for depth in depths]), deepest
