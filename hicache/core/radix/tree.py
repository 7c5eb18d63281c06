"""The radix tree: create, split, truncate and remove nodes, and attach and detach their pages.

Every change to the pages or the place of a node is made here, so that the ledger, the counts of the
parents and the eviction queues agree after each call. Decides nothing; see `insertion`, `backup`
and `eviction`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush

from ..actions import KvRemoved, KvStored
from ..errors import About, CoreBug
from ..state import State
from ..storage.queue import dequeue, follow_split, follow_truncation
from ..types import (
    BACKBONE,
    DEVICE,
    HOST,
    NO_PAGES,
    TIERS,
    Pages,
    Rows,
    chain_digests,
    kept,
    kept_rows,
    root_digest,
)
from .boundaries import begin_split, changed, end_split, note_span
from .lru import offer
from .marks import came, gone, mark_split
from .node import NOTHING, FlightKind, Leg, Node, count_child, is_locked, own_locks, set_pages


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
    above: Node | None = node
    while above is not None and above.parent is not None:
        path.append(above)
        above = above.parent
    path.reverse()
    return path


def copies(node: Node) -> int:
    """How many copies the node has, of all components on both tiers."""
    count = 0
    for row in node.pages:
        for pages in row:
            if pages is not None:
                count += 1
    return count


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
    note_span(state, node)
    state.touched[node.id] = node
    state.touched[parent.id] = parent
    return node


def split(state: State, node: Node, at: int) -> Node:
    """Split a node `at` pages from its start. Returns the new upper half; `node` becomes the lower.

    Pages, locks and legs go to the half that their tokens belong to.
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
    if state.marked:
        mark_split(state, upper, node)
    if node.digests is not None:
        upper.digests, node.digests = node.digests[:at], node.digests[at:]
    for tier in (0, 1):
        for index, component in enumerate(state.components):
            held = node.pages[tier][index]
            if held is None:
                continue
            above, below = component.split(held, at)
            if (0 if above is None else len(above)) + (0 if below is None else len(below)) != len(
                held
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
    _split_legs(state, node, upper, at)
    if state.beliefs_since:
        follow_split(state, upper, node)
    end_split(state, upper, node)
    state.touched[node.id] = node
    return upper


def _split_legs(state: State, node: Node, upper: Node, at: int) -> None:
    for leg in node.legs:
        component = state.components[leg.component]
        source_above, source_below = component.split(leg.source, at)
        target_above, target_below = (
            (NO_PAGES, NO_PAGES)
            if leg.flight.kind is FlightKind.STORE
            else component.split(leg.target, at)
        )
        if source_above is None or target_above is None:
            continue
        if source_below is None or target_below is None:
            raise CoreBug(
                f"a split moved a leg of {node} away from its lower half", About("node", node.id)
            )
        if len(source_above) != at or len(target_above) not in (at, len(leg.target)):
            raise CoreBug(f"{upper} gets {len(source_above)} pages of a leg, for {at}")
        above = Leg(leg.flight, upper, leg.component, source_above, target_above)
        leg.source, leg.target = source_below, target_below
        legs = leg.flight.legs
        legs.insert(legs.index(leg), above)
        upper.legs += (above,)


def attach(state: State, node: Node, tier: int, index: int, pages: Pages) -> None:
    """Give the node these pages of a component on the tier. The pages must be owned or lent.

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
    if state.chances and tier == DEVICE:
        came(state, node, index, len(pages), digests_of_copy(state, node, index))
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
    if state.chances:
        gone(state, node, tier, index, len(pages))
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
    if pages is None or node.children or copies(node) > 1:
        raise CoreBug(f"{node} cannot be cut to {keep} pages", About("node", node.id))
    cut = len(pages) - keep
    if not 0 < keep < len(pages):
        raise CoreBug(f"{node} cannot keep {keep} of its {len(pages)} pages")
    if state.config.kv_events:
        state.out.append(KvRemoved(TIERS[tier], digests_of(state, node)[keep:]))
    if node.digests is not None:
        node.digests = node.digests[:keep]
    follow_truncation(state, node)
    if state.chances:
        gone(state, node, tier, BACKBONE, cut)
    node.key = kept_rows(node.key, 0, keep * state.stride)
    node.end_page -= cut
    set_pages(node, tier, BACKBONE, kept(pages[:keep]))
    note_span(state, node)
    state.touched[node.id] = node
    offer(state.queues, state.eviction, node, tier, BACKBONE)
    return pages[keep:]


def unlink(state: State, node: Node) -> None:
    """Remove a node from the tree. It must have no children, legs or locks."""
    parent = node.parent
    if parent is None or node.children or node.legs or is_locked(node):
        raise CoreBug(f"{node} cannot be removed", About("node", node.id))
    if parent.children.pop(node.label, None) is not node:
        raise CoreBug(f"{node} is not the child of {parent} under its label")
    parent.children_in_reach.pop(node.id, None)
    if node.store_place:
        dequeue(state, node)
    node.parent = None
    state.touched[node.id] = node
    state.touched[parent.id] = parent


def digests_of_copy(state: State, node: Node, index: int) -> tuple[bytes, ...]:
    """The digests of the pages of a component; a state has that of the page at its end."""
    digests = digests_of(state, node)
    return digests if state.components[index].positional else digests[-1:]


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
