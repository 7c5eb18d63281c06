"""Read-only access to the state of a core, for observers and checks alone.

The view returns the core's own records (`Node`, `Pool`, `Request`, `Transfer`), not copies. A check
reads their fields and keeps its own shadow state. Code outside the core must not write to them.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from . import lru
from .components import Component
from .config import Config
from .eviction import missing_on_host
from .eviction_policies import EvictionPolicy
from .ledger import Pool
from .node import Node, Pin, Request, Transfer, copy_of
from .prefetch import prefetching_tokens
from .prefetch_policies import PrefetchPolicy
from .state import State, believed, queued_nodes, tells
from .tree import nodes_below, walk
from .types import BACKBONE, DEVICE, Key, Pages, PinId, RequestId, Tier, TransferId
from .write_policies import WritePolicy


class CoreView:
    """Read-only access to one core."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def config(self) -> Config:
        return self._state.config

    @property
    def root(self) -> Node:
        return self._state.root

    @property
    def tick(self) -> int:
        return self._state.tick

    @property
    def requests(self) -> Mapping[RequestId, Request]:
        return self._state.requests

    @property
    def running(self) -> Mapping[RequestId, Request]:
        """The admitted requests, in the order of their admission."""
        return self._state.running

    @property
    def transfers(self) -> Mapping[TransferId, Transfer]:
        return self._state.transfers

    @property
    def touched(self) -> Mapping[int, Node]:
        """Nodes that the last event created, changed or deleted, by id."""
        return self._state.touched

    @property
    def touched_requests(self) -> Mapping[RequestId, None]:
        """Ids of the requests that the last event created, changed or ended."""
        return self._state.touched_requests

    @property
    def eviction(self) -> EvictionPolicy:
        return self._state.eviction

    @property
    def writes(self) -> WritePolicy:
        return self._state.writes

    @property
    def prefetching(self) -> PrefetchPolicy:
        return self._state.prefetching

    @property
    def attached(self) -> bool:
        """Whether storage may be used."""
        return self._state.attached

    @property
    def storage_transfers(self) -> Mapping[TransferId, Transfer]:
        """The lookups, fetches, stores and deletes in flight, the oldest first."""
        return self._state.storage_transfers

    @property
    def prefetching_tokens(self) -> int:
        """Tokens that are being looked up or fetched."""
        return prefetching_tokens(self._state)

    @property
    def store_queue(self) -> tuple[int, ...]:
        """Ids of the nodes that wait to be stored, in their order."""
        return tuple(node.id for node in queued_nodes(self._state))

    @property
    def distrusted(self) -> tuple[bytes, ...]:
        """Digests of pages that storage promised and did not deliver, the oldest first."""
        return tuple(self._state.distrusted)

    def believed(self, node: Node, component: int = 0) -> bool:
        """Whether storage is believed to have all pages of the node's component."""
        return bool(believed(self._state, node) >> component & 1)

    def is_outdated(self, transfer: Transfer) -> bool:
        """Whether the reply of a transfer says nothing of the storage that is attached now."""
        return not tells(self._state, transfer)

    @property
    def components(self) -> tuple[Component, ...]:
        return self._state.components

    def writing_back(self, component: int = 0) -> int:
        """Device pages whose eviction waits for a backup's reply."""
        return self._state.writing_back[component]

    def giving_up(self, component: int = 0) -> int:
        """Host pages that loads in flight give up once they have landed."""
        return self._state.giving_up[component]

    def pool(self, tier: Tier, component: int = 0) -> Pool:
        return self._state.pools[tier][component]

    def pools(self, tier: Tier) -> Sequence[Pool]:
        """The tier's pools, in the order of the components."""
        return self._state.pools[tier]

    def queue_entries(self, part: int) -> Sequence[lru.Entry]:
        """The heap of a part of an eviction queue: (rank, -end page, node id, node) of each entry.
        part: 6 for each component before, 2 for each of its queues (device, host, host and also on
        device), 1 for copies that no live boundary requires."""
        component, queue = divmod(part, 2 * lru.KINDS)
        return self._state.queues[component][queue // 2].heaps[queue % 2]

    def unsaved(self, key: Key, pages: int) -> int:
        """Of the first pages of a key, those of the backbone that are on device, neither on host
        nor in a backup."""
        return sum(
            len(copy_of(node, DEVICE, BACKBONE))
            for node in walk(self._state, key, pages)[0]
            if BACKBONE in missing_on_host(self._state, node)
        )

    @property
    def least_swept(self) -> int:
        """The number of entries from which on an eviction queue is swept of stale ones."""
        return lru.LEAST_SWEPT

    @property
    def pins(self) -> Mapping[PinId, Pin]:
        """The prefixes that the caller pinned, by the number that it gave them."""
        return self._state.pins

    @property
    def periods(self) -> Sequence[int]:
        """The ticks at the ends of the last periods."""
        return self._state.period_ticks

    def peers(self, tier: Tier, component: int) -> Pages:
        """int64[capacity of the backbone's pool on the tier]: for each backbone page, the page of
        another positional component for the same positions, plus 1; 0 if there is none."""
        result = np.zeros(self.pool(tier).capacity, dtype=np.int64)
        for node in self.nodes():
            full, other = node.pages[tier][0], node.pages[tier][component]
            if full is not None and other is not None:
                result[full] = other + 1
        if tier == DEVICE:
            for request in self._state.running.values():
                full, other = request.tables[0], request.tables[component]
                result[full[request.shared_pages :]] = other[request.shared_pages :] + 1
        return result

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents before children."""
        return nodes_below(self._state.root)
