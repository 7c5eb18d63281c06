"""Everything one core knows, in one record that the core's modules pass around.

Lives here: what is remembered between events, and what the current event changed. Must not live
here: a decision, or what follows from one. Not to be written outside hicache/core; checks read it
through `view.CoreView`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .actions import Outcome
from .components.base import Component
from .config import Config
from .eviction_policies.base import EvictionPolicy
from .ledger import Pool
from .radix.lru import Queue
from .radix.node import Flight, Node, Request
from .types import FlightId, RequestId
from .write_policies.base import WritePolicy


@dataclass(slots=True, eq=False)
class State:
    """All that a core remembers between two events.

    widest_window_pages  the widest window of a component that requires less than the whole path; 0
                      where there is none.
    every_end_is_live whether there is none: then every node's end is a live boundary.
    bounded           components that hold a page per position, and require only the last of them.
    interval          tokens between depths that can be a boundary of every component.
    stateful          whether a component has states: one page per node, not one per position.
    tick              counts the events that use nodes.
    next_*            the ids to hand out.
    pools             [tier][component].
    queues            [component][kind], see lru.
    touched*          what the current event created, changed or removed, for observers that check
                      incrementally.
    dead              nodes that lost their last live boundary, until the eviction at hand has
                      dropped those that nobody uses.
    out               what the current event answers.
    running           the admitted requests, latest last.
    stride            bytes per key row, set by the first key.
    backups           how many are in flight.
    giving_up         [component]: host pages that loads under way will give up.
    writing_back      [component]: device pages whose eviction waits for a backup's reply.
    """

    config: Config
    components: tuple[Component, ...]
    eviction: EvictionPolicy
    writes: WritePolicy
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
