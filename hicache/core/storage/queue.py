"""Records of the third tier that follow the tree: which copies storage is believed to have, the
queue of nodes to store, and the digests that storage promised and did not deliver.

The queue has places in the order in which they were given out. A place has the parts of what was
one node when it got the place, from the top down.

Decides nothing; see `stores` and `prefetch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import CoreBug
from ..radix.node import Flight, Node
from ..state import State

MOST_DISTRUSTED = 1024


def believed(state: State, node: Node) -> int:
    """Bits: the components of the node that storage is believed to have."""
    return node.stored if node.stored_since == state.beliefs_since else 0


def tells(state: State, flight: Flight) -> bool:
    """Whether the reply of this flight says something of the storage that is attached now: not if
    it began before `StorageAttached` came again."""
    return flight.beliefs_since == state.beliefs_since


def believe(state: State, node: Node, index: int) -> None:
    """Storage has all pages of the node's component."""
    node.stored = believed(state, node) | 1 << index
    node.stored_since = state.beliefs_since
    state.touched[node.id] = node


def forget_storage(state: State) -> None:
    """Forget what was believed of storage, and what was to be stored."""
    state.beliefs_since += 1
    state.distrusted.clear()
    for node in queued_nodes(state):
        node.store_place = 0
    state.store_queue.clear()


def queued_nodes(state: State) -> Iterator[Node]:
    """The nodes to store, in the order of the queue."""
    for nodes in state.store_queue.values():
        yield from nodes


def enqueue(state: State, node: Node) -> None:
    """Put a node at the end of the queue. A node that is in the queue keeps its place."""
    if node.parent is None:
        raise CoreBug(f"{node} is to be stored and not in the tree")
    if not node.store_place:
        node.store_place = state.next_place
        state.next_place += 1
        state.store_queue[node.store_place] = [node]


def dequeue(state: State, node: Node) -> None:
    """Take a node out of the queue."""
    place, node.store_place = node.store_place, 0
    if place:
        nodes = state.store_queue[place]
        nodes.remove(node)
        if not nodes:
            del state.store_queue[place]


def follow_split(state: State, upper: Node, node: Node) -> None:
    """The node was split: both halves have its place, its failures and what is believed of it."""
    if node.store_place:
        nodes = state.store_queue[node.store_place]
        nodes.insert(nodes.index(node), upper)
        upper.store_place = node.store_place
    upper.store_failures = node.store_failures
    upper.stored_since = node.stored_since
    for index, component in enumerate(state.components):
        if component.positional:
            upper.stored |= node.stored & 1 << index


def follow_truncation(state: State, node: Node) -> None:
    """The tail of the node is gone, and with it the page at which its states were stored."""
    for index, component in enumerate(state.components):
        if not component.positional:
            node.stored &= ~(1 << index)


def distrust(state: State, digest: bytes) -> None:
    """Storage has promised this page and has not delivered it."""
    state.distrusted.pop(digest, None)
    state.distrusted[digest] = None
    if len(state.distrusted) > MOST_DISTRUSTED:
        del state.distrusted[next(iter(state.distrusted))]


def trust(state: State, digests: Iterable[bytes]) -> None:
    """Storage has these pages now."""
    if state.distrusted:
        for digest in digests:
            state.distrusted.pop(digest, None)
