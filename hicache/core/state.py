"""The state of one core, in one record that the core's modules pass to each other.

It holds what the core remembers between events, and what the current event has changed. It makes
no decisions. Only hicache/core may write to it; checks read it through `view.CoreView`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .actions import Outcome
from .components.base import Component
from .config import Config
from .eviction_policies.base import EvictionPolicy, SecondChance
from .ledger import Pool
from .prefetch_policies.base import PrefetchPolicy
from .radix.lru import Queue, SecondChances
from .radix.node import Flight, Node, Pin
from .requests.record import Request
from .types import FlightId, PinId, RequestId
from .write_policies.base import WritePolicy


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
    storage_flights   the lookups, fetches, stores and deletes in flight, the oldest first.
    store_queue       by place, the nodes to store, see `storage/queue`. next_place: the next place.
    distrusted        digests of pages that storage promised and did not deliver, the oldest first.
    marked            whether the eviction policy asks for marks, see `radix/marks`.
    second_chance     the two queues that it declares, or None. chances: by component, what they
                      remember; empty without them.
    turn              under a policy that asks for marks, counts events and copies that were spared.
    newest, newest_before  the tick of the last insertion into the tree, until now and before this
                      event.
    age, next_age     [component]: the highest rank that was evicted from the device before this
                      event, and until now.
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
    flights: dict[FlightId, Flight] = field(default_factory=dict)
    touched: dict[int, Node] = field(default_factory=dict)
    touched_requests: dict[RequestId, None] = field(default_factory=dict)
    dead: list[Node] = field(default_factory=list)
    out: list[Outcome] = field(default_factory=list)
    tick: int = 0
    next_node: int = 1
    next_flight: int = 1
    next_receipt: int = 1
    backups: int = 0
    stride: int = 0
    attached: bool = False
    beliefs_since: int = 0
    arrivals: int = 0
    storage_flights: dict[FlightId, Flight] = field(default_factory=dict)
    store_queue: dict[int, list[Node]] = field(default_factory=dict)
    next_place: int = 1
    distrusted: dict[bytes, None] = field(default_factory=dict)
    marked: bool = False
    second_chance: SecondChance | None = None
    chances: list[SecondChances] = field(default_factory=list)
    turn: int = 0
    newest: int = 0
    newest_before: int = 0
    age: list[int] = field(default_factory=list)
    next_age: list[int] = field(default_factory=list)
    unused: list[tuple[int, int, Node]] = field(default_factory=list)
    period_ticks: list[int] = field(default_factory=list)
    pins: dict[PinId, Pin] = field(default_factory=dict)
