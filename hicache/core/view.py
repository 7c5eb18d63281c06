"""What observers may see of a core: everything, to read. Nothing here computes or changes state.

The records behind it (`Node`, `Pool`, `Request`, `Flight`) are the core's own; a check reads their
fields and keeps its own books. Writing to one from outside the core is a defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .config import Config
from .ledger import Pool
from .node import Flight, Node, Request
from .state import State
from .types import FlightId, RequestId, Tier


class CoreView:
    """Read-only window on one core."""

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
    def flights(self) -> Mapping[FlightId, Flight]:
        return self._state.flights

    @property
    def touched(self) -> Mapping[int, Node]:
        """Nodes that the last event created, changed or removed, by id."""
        return self._state.touched

    @property
    def touched_requests(self) -> Mapping[RequestId, None]:
        """Ids of the requests that the last event created, changed or removed."""
        return self._state.touched_requests

    @property
    def draining(self) -> int:
        """Device pages whose eviction waits for a backup's reply."""
        return self._state.draining

    def pool(self, tier: Tier, component: int = 0) -> Pool:
        return self._state.pools[tier][component]

    def queue_entries(self, queue: int) -> list[tuple[int, int]]:
        """(rank, node id) of each entry of an eviction queue (0 device, 1 host, 2 duplicate)."""
        return [(rank, node.id) for rank, _, node in self._state.queues[queue].entries]

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents before children."""
        stack = list(self._state.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
