"""The records of the tree: nodes, receipts, legs, flights and requests. Mutable, without methods.

Only `tree`, `locks`, `insertion`, `admission`, `eviction`, `backup` and `transfers` write to them,
and only inside `Core.handle`. Checks read them; nothing else sees them.

    page depth   0          a.end        b.end
                 |--- a ----|---- b -----|        a.end == a.parent.end + pages(a)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..types import NO_PAGES, FlightId, Key, Pages, RequestId, Tier

NONE = 1 << 41
FAR = 1 << 40


class Node:
    """An edge-compressed run of pages below its parent.

    key            the run's rows (bytes), never empty but for the root.
    label          the bytes under which the parent holds it: its first row, after the namespace
                   where the parent is the root.
    end            page depth of its last page.
    pages          [tier][component]: page numbers, or None where the component is not there.
    holders        [tier][component]: the receipts that lock it; a lock count is a length.
    with_pages     [tier]: how many children hold the backbone on that tier.
    last_use       [component]: tick of the last event that used it there.
    near           pages from `end` down to the nearest live boundary at or below it (`boundaries`):
                   0 where its own end is one, FAR beyond every bounded reach, NONE without any.
    below          how many children contribute which distance to `near`.
    close          by id, the children that end within the farthest bounded reach of its end.
    inserted       tick at which it came into the tree; both halves of a split keep it.
    hits           requests that used it.
    priority       the highest priority of those.
    queued         bits: which eviction queues it has an entry in (see lru).
    legs           the transfers in flight that read or fill it.
    unsaved        bits: the components that host did not take when they were to be evicted; next
                   time they are dropped.
    digests        SHA-256 chain, one per page; None until someone needs it.
    """

    __slots__ = (
        "below",
        "children",
        "close",
        "digests",
        "end",
        "hits",
        "holders",
        "id",
        "inserted",
        "key",
        "label",
        "last_use",
        "legs",
        "near",
        "pages",
        "parent",
        "priority",
        "queued",
        "unsaved",
        "with_pages",
    )

    def __init__(
        self, node_id: int, parent: Node | None, key: bytes, label: bytes, end: int, components: int
    ) -> None:
        self.id = node_id
        self.parent = parent
        self.key = key
        self.label = label
        self.end = end
        self.children: dict[bytes, Node] = {}
        self.pages: list[list[Pages | None]] = [[None] * components, [None] * components]
        self.holders: list[list[dict[int, Receipt]]] = [
            [{} for _ in range(components)],
            [{} for _ in range(components)],
        ]
        self.with_pages = [0, 0]
        self.last_use = [0] * components
        self.near = NONE
        self.below: dict[int, int] = {}
        self.close: dict[int, Node] = {}
        self.inserted = 0
        self.hits = 0
        self.priority = 0
        self.queued = 0
        self.unsaved = 0
        self.legs: list[Leg] = []
        self.digests: tuple[bytes, ...] | None = None

    def __repr__(self) -> str:
        sides = "".join(
            letter if pages is not None else "-"
            for tier, letter in ((Tier.DEVICE, "D"), (Tier.HOST, "H"))
            for pages in self.pages[tier]
        )
        return f"<node {self.id} ..{self.end} {sides} use {self.last_use}>"


@dataclass(slots=True, eq=False)
class Receipt:
    """Exactly what one holder locked: (node, tier) by component. A release replays just that.

    When a node splits, the half that gets the component's pages gets the lock (locks follow pages).
    """

    id: int
    holder: str
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


@dataclass(slots=True, eq=False)
class Flight:
    """One action in flight. `lent`: device pages by component, given on loan besides the legs.

    kind: load, backup or prefill. drains: by component, device pages that a backup was begun for so
    that they can be evicted. request: the seated request that it works for; NO_REQUEST once that is
    gone or a load landed. checkpoints: (component, depth in tokens, slot) that a prefill leaves.
    """

    id: FlightId
    kind: str
    request: RequestId
    receipt: Receipt | None
    legs: list[Leg] = field(default_factory=list)
    lent: list[Pages] = field(default_factory=list)
    end: int = 0
    drains: list[int] = field(default_factory=list)
    checkpoints: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Request:
    """A waiting or seated request.

    tables   [component]: device pages. By position, covering at least `computed` tokens while
             seated, -1 where it has none; or the slots of a state: working, then two tracks.
    shared   leading positions that nodes have, or will have once `load` lands; what the tables
             have behind them, and every slot, is its own.
    computed tokens whose KV is in the table's pages.
    last     the node that ends with the shared positions, None for none; locked, so it stays.
    filled   positions that pages of bounded components were taken for.
    branch   pages that were known when it was seated: where it is likely to part from others.
    tracked  [component][track]: tokens that the state in that slot has read, 0 for none.
    since    tokens that it may have computed when a track was last taken.
    cleared  [component]: leading positions at which a bounded component has no page any more.
    sources  [component]: the page to copy into the working slot before the first pass, or -1.
    prefill  flight of the chunk that runs, else 0. load: flight of its load-back until that has
             landed, else 0.
    may_load False after a failed load or forward pass: it recomputes from then on.
    priority as its caller gave it; what it uses goes later under a policy that asks for it.
    """

    id: RequestId
    key: Key
    length: int
    match_pages: int
    seated: bool = False
    tables: list[Pages] = field(default_factory=lambda: [NO_PAGES])
    shared: int = 0
    last: Node | None = None
    computed: int = 0
    filled: int = 0
    branch: int = 0
    tracked: list[list[int]] = field(default_factory=list)
    since: int = 0
    cleared: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    prefill: FlightId = 0
    load: FlightId = 0
    may_load: bool = True
    priority: int = 0
    receipt: Receipt | None = None
