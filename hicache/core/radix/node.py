"""The records of the core: nodes, receipts, legs, flights and requests. Mutable, without methods.

Lives here: their fields and what each means. Must not live here: anything that changes one. The
modules of the core write to them, and only inside `Core.handle`; checks read them.

    page depth   0          a.end_page   b.end_page
                 |--- a ----|---- b -----|        a.end_page == a.parent.end_page + pages(a)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..types import NO_PAGES, FlightId, Key, Pages, RequestId, Tier

NONE = 1 << 41
FAR = 1 << 39


class Node:
    """An edge-compressed run of pages below its parent.

    key            the run's rows (bytes), never empty but for the root.
    label          the bytes under which the parent holds it: its first row, after the namespace
                   where the parent is the root.
    end_page       page depth of its last page.
    pages          [tier][component]: page numbers, or None where the component is not there.
    locks          [tier][component]: the receipts that lock it; a lock count is a length.
    with_pages     [tier]: how many children hold the backbone on that tier.
    last_use       [component]: tick of the last event that used it there.
    live_distance  pages from its end down to the nearest live boundary at or below it
                   (`boundaries`): 0 where its own end is one, FAR from the widest window on, NONE
                   without any.
    child_distances  how many children contribute which distance to `live_distance`.
    children_in_reach  by id, the children that end within the widest window of its end.
    inserted       tick at which it came into the tree; both halves of a split keep it.
    hits           requests that used it.
    priority       the highest priority of those.
    queued         bits: which eviction queues it has an entry in (see lru).
    legs           the transfers in flight that read or fill it.
    host_refused   bits: the components that host did not take when they were to be evicted; next
                   time they are dropped.
    digests        SHA-256 chain, one per page; None until someone needs it.
    """

    __slots__ = (
        "child_distances",
        "children",
        "children_in_reach",
        "digests",
        "end_page",
        "hits",
        "host_refused",
        "id",
        "inserted",
        "key",
        "label",
        "last_use",
        "legs",
        "live_distance",
        "locks",
        "pages",
        "parent",
        "priority",
        "queued",
        "with_pages",
    )

    def __init__(
        self, node_id: int, parent: Node | None, key: bytes, label: bytes, end: int, components: int
    ) -> None:
        self.id = node_id
        self.parent = parent
        self.key = key
        self.label = label
        self.end_page = end
        self.children: dict[bytes, Node] = {}
        self.pages: list[list[Pages | None]] = [[None] * components, [None] * components]
        self.locks: list[list[dict[int, Receipt]]] = [
            [{} for _ in range(components)],
            [{} for _ in range(components)],
        ]
        self.with_pages = [0, 0]
        self.last_use = [0] * components
        self.live_distance = NONE
        self.child_distances: dict[int, int] = {}
        self.children_in_reach: dict[int, Node] = {}
        self.inserted = 0
        self.hits = 0
        self.priority = 0
        self.queued = 0
        self.host_refused = 0
        self.legs: list[Leg] = []
        self.digests: tuple[bytes, ...] | None = None

    def __repr__(self) -> str:
        sides = "".join(
            letter if pages is not None else "-"
            for tier, letter in ((Tier.DEVICE, "D"), (Tier.HOST, "H"))
            for pages in self.pages[tier]
        )
        return f"<node {self.id} ..{self.end_page} {sides} use {self.last_use}>"


@dataclass(slots=True, eq=False)
class Receipt:
    """Exactly what one holder locked: (node, tier) by component. A release replays just that.

    When a node splits, the half that gets the component's pages gets the lock (locks follow pages).
    """

    id: int
    name: str
    locked: list[list[tuple[Node, int]]]


@dataclass(slots=True, eq=False)
class Leg:
    """One node's part of a transfer: page numbers of `component` from one tier to the other.

    node is None once the tree forgot it (flush): the pages still belong to the flight. Each page of
    `source` and of `target` stays lent until the flight's reply.
    """

    flight: Flight
    node: Node | None
    component: int
    source: Pages
    target: Pages


class FlightKind(StrEnum):
    """What is in flight."""

    LOAD = "load"
    BACKUP = "backup"
    PREFILL = "prefill"


@dataclass(slots=True, eq=False, repr=False)
class Flight:
    """One action in flight.

    request      the admitted request that it works for; NO_REQUEST for a backup, once the request
                 is gone, and once a load has landed.
    receipt      what it locks until its reply.
    legs         of a load or backup: what it copies, until that has ended.
    lent         [component] of a prefill: device pages on loan to it.
    frees        [component] of a backup that an eviction waits for: the device pages that can go
                 when it ends.
    evicts       of a backup: whether an eviction waits for it.
    gives_up     [component] of a load: host pages that it frees once it has landed.
    end_token    of a prefill: where it ends.
    checkpoints  of a prefill: (component, depth in tokens, slot) of the states that it leaves.
    """

    id: FlightId
    kind: FlightKind
    request: RequestId
    receipt: Receipt | None = None
    legs: list[Leg] = field(default_factory=list)
    lent: list[Pages] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)
    evicts: bool = False
    gives_up: list[int] = field(default_factory=list)
    end_token: int = 0
    checkpoints: list[tuple[int, int, int]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id} for request {self.request}>"


@dataclass(slots=True, eq=False)
class Request:
    """A waiting or admitted request.

    tables         [component]: device pages. By position, covering at least `computed_tokens` while
                   admitted, -1 where it has none; or the slots of a state: working, then two for
                   checkpoints.
    shared_pages   leading positions that nodes have, or will have once `load` lands; what the
                   tables have behind them, and every slot, is its own.
    shared_node    the node that ends with the shared positions, None for none; locked, so it stays.
    computed_tokens  those whose KV is in the table's pages.
    filled_pages   positions that pages of bounded components were taken for.
    branch_pages   pages that were known when it was admitted: where it is likely to part from
                   others.
    checkpoint_tokens  [component][checkpoint slot]: tokens that the state in it has read, 0: none.
    refilled_at_tokens  tokens that it may have computed when a checkpoint slot was last taken.
    cleared_pages  [component]: leading positions at which a bounded component has no page any more.
    sources        [component]: the page to copy into the working slot before the first pass, or -1.
    prefill        flight of the chunk that runs, else 0. load: flight of its load-back until that
                   has landed, else 0.
    may_load       False after a failed load or forward pass: it recomputes from then on.
    priority       as its caller gave it; what it uses is kept longer under a policy for it.
    """

    id: RequestId
    key: Key
    length: int
    match_pages: int
    admitted: bool = False
    tables: list[Pages] = field(default_factory=lambda: [NO_PAGES])
    shared_pages: int = 0
    shared_node: Node | None = None
    computed_tokens: int = 0
    filled_pages: int = 0
    branch_pages: int = 0
    checkpoint_tokens: list[list[int]] = field(default_factory=list)
    refilled_at_tokens: int = 0
    cleared_pages: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    prefill: FlightId = 0
    load: FlightId = 0
    may_load: bool = True
    priority: int = 0
    receipt: Receipt | None = None
