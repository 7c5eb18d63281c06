"""The state of one core, in one record that the core's modules pass to each other, and the part of
it that follows storage: which copies it is believed to have, the queue of nodes to store, and the
digests that it promised and did not deliver.

It holds what the core remembers between events, and what the current event has changed. It makes
no decisions. Only hicache/core may write to it; checks read it through `view.CoreView`. The queue
has places in the order in which they were given out; a place has the parts of what was one node
when it got the place, from the top down.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .actions import Outcome
from .components import Component
from .config import Config
from .errors import CoreBug
from .eviction_policies import EvictionPolicy
from .ledger import Pool
from .lru import Queue
from .node import Node, Pin, Request, Transfer
from .prefetch_policies import PrefetchPolicy
from .types import PinId, RequestId, TransferId
from .write_policies import WritePolicy


@dataclass(slots=True, eq=False)
class State:
    """All that a core remembers between two events.

    widest_window_pages  the largest window of the components that do not require the whole path; 0
                      if every component requires the whole path.
    every_end_is_live whether every component requires the whole path. Then the end of every node
                      is a live boundary.
    bounded           positional components that require only a window, not the whole path.
    interval          tokens between depths at which every component can have a boundary.
    stateful          whether some component has states: one page per node, not one per position.
    tick              counts the events that use nodes.
    next_*            the next id to give out.
    pools             [tier][component].
    queues            [component][kind], see lru.
    touched*          what the current event created, changed or removed, for observers that check
                      incrementally.
    dead              nodes that lost their last live boundary. The current eviction deletes those
                      that are not in use.
    out               the outcomes of the current event.
    running           the admitted requests, in the order of their admission.
    stride            bytes per key row, set by the first key.
    backups           number of backups in flight.
    giving_up         [component]: host pages that loads in flight will free.
    writing_back      [component]: device pages whose eviction waits for a backup's reply.
    attached          whether storage may be used.
    beliefs_since     counts how often what was believed of storage was forgotten; 0 as long as no
                      storage was attached. Only nodes that have this number are believed stored.
    arrivals          counts the requests that arrived.
    storage_transfers   the lookups, fetches, stores and deletes in flight, the oldest first.
    store_queue       by place, the nodes to store. next_place: the next place.
    distrusted        digests of pages that storage promised and did not deliver, the oldest first.
    unused            heap of (tick, node id, node): each node once, with a tick not after its last
                      use, if copies expire. period_ticks: the ticks at the last periods.
    pins              the prefixes that the caller pinned.
    """

    config: Config
    components: tuple[Component, ...]
    eviction: EvictionPolicy
    writes: WritePolicy
    prefetching: PrefetchPolicy
    pools: list[list[Pool]]
    queues: list[list[Queue]]
    root: Node
    widest_window_pages: int
    every_end_is_live: bool
    bounded: tuple[int, ...]
    interval: int
    stateful: bool
    writing_back: list[int]
    giving_up: list[int]
    requests: dict[RequestId, Request] = field(default_factory=dict)
    running: dict[RequestId, Request] = field(default_factory=dict)
    transfers: dict[TransferId, Transfer] = field(default_factory=dict)
    touched: dict[int, Node] = field(default_factory=dict)
    touched_requests: dict[RequestId, None] = field(default_factory=dict)
    dead: list[Node] = field(default_factory=list)
    out: list[Outcome] = field(default_factory=list)
    tick: int = 0
    next_node: int = 1
    next_transfer: int = 1
    next_receipt: int = 1
    backups: int = 0
    stride: int = 0
    attached: bool = False
    beliefs_since: int = 0
    arrivals: int = 0
    storage_transfers: dict[TransferId, Transfer] = field(default_factory=dict)
    store_queue: dict[int, list[Node]] = field(default_factory=dict)
    next_place: int = 1
    distrusted: dict[bytes, None] = field(default_factory=dict)
    unused: list[tuple[int, int, Node]] = field(default_factory=list)
    period_ticks: list[int] = field(default_factory=list)
    pins: dict[PinId, Pin] = field(default_factory=dict)


MOST_DISTRUSTED = 1024


def believed(state: State, node: Node) -> int:
    """Bits: the components of the node that storage is believed to have."""
    return node.stored if node.stored_since == state.beliefs_since else 0


def tells(state: State, transfer: Transfer) -> bool:
    """Whether the reply of this transfer says something of the storage that is attached now: not if
    it began before `StorageAttached` came again."""
    return transfer.beliefs_since == state.beliefs_since


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
