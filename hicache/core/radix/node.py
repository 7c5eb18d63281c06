"""The records of the core: nodes, receipts, legs and flights. For requests see `requests/record`.

They are mutable and have no behaviour. Only the modules of the core write to them, and only inside
`Core.handle`; checks read them. For changes to the tree see `tree`.

    page depth   0          a.end_page   b.end_page
                 |--- a ----|---- b -----|        a.end_page == a.parent.end_page + pages(a)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from ..errors import CoreBug
from ..types import DEVICE, HOST, FlightId, Key, Pages, PinId, RequestId, Rows, Tier

NONE: Final = 1 << 41
FAR: Final = 1 << 39


class Marks:
    """What some eviction policies remember of a node, by component (see eviction_policies/base).

    visits, age, cost, earlier   facts, see `Facts`; earlier is one for all components.
    place      second chance: its place in its queue; lower is nearer to the front.
    chances    second chance: how often it is spared.
    in_main    second chance: whether its copy on device is in the main queue.
    """

    __slots__ = ("age", "chances", "cost", "earlier", "in_main", "place", "visits")

    def __init__(self, components: int) -> None:
        self.visits = [0] * components
        self.age = [0] * components
        self.cost = [0] * components
        self.earlier = 0
        self.place = [0] * components
        self.chances = [0] * components
        self.in_main = [False] * components

    def copy(self) -> Marks:
        made = Marks(0)
        made.visits, made.age, made.cost = self.visits.copy(), self.age.copy(), self.cost.copy()
        made.place, made.chances = self.place.copy(), self.chances.copy()
        made.in_main, made.earlier = self.in_main.copy(), self.earlier
        return made


NO_MARKS = Marks(0)


class _Nothing(dict[Any, Any]):
    """An empty dictionary that many nodes share, and that refuses to be filled."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise CoreBug(f"{value} is put into a dictionary that nodes share")


NOTHING: Final = _Nothing()
Copies: TypeAlias = tuple["Pages | None", ...]
Locks: TypeAlias = "tuple[tuple[dict[int, Receipt], ...], tuple[dict[int, Receipt], ...]]"
_BARE: dict[int, tuple[tuple[Copies, ...], Locks]] = {}


def _bare(components: int) -> tuple[tuple[Copies, ...], Locks]:
    """The pages of a node that has none, and the locks of one that is not locked."""
    found = _BARE.get(components)
    if found is None:
        none = (NOTHING,) * components
        found = ((None,) * components,) * 2, (none, none)
        _BARE[components] = found
    return found


class Node:
    """A run of pages below its parent in the radix tree.

    Most nodes have no children, locks or legs, so they share one empty value of each: a tuple, or
    `NOTHING`. A node gets dictionaries of its own when something is put into them.

    key            the run's rows; empty for the root only.
    label          its key in the parent's `children`: its first row, after the namespace if the
                   parent is the root.
    end_page       page depth of its last page.
    pages          [tier][component]: page numbers, or None where the component is not there.
    locks          [tier][component]: the receipts that lock it, by id.
    with_pages     [tier]: how many children have the backbone on that tier.
    last_use       [component]: tick of the last event that used the component at this node.
    live_distance  pages from its end down to the nearest live boundary at or below it (see
                   `boundaries`): 0 if its own end is one, FAR if the distance is at least the
                   widest window, NONE if there is none.
    child_distances  [distance]: how many children are at this distance from a live boundary.
    children_in_reach  by id, the children that end within the widest window below its end.
    inserted       tick at which it was inserted into the tree; both halves of a split keep it.
    hits           number of requests that used it.
    priority       the highest priority of these requests.
    marks          what the eviction policy remembers of it; empty unless it asks for marks.
    queued         bits: which heaps of eviction queues have an entry for it (see lru).
    legs           the legs of flights that read or fill it.
    host_refused   bits: the components that host did not take when they were to be evicted. Next
                   time they are dropped.
    digests        SHA-256 chain, one per page; None until it is computed.
    stored         bits: the components that storage is believed to have; of no meaning unless
                   `stored_since` is the number in the state.
    store_failures stores of the node that have failed since a request used it.
    store_place    its place in the queue of nodes to store; 0 if it is not in the queue.
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
        "marks",
        "pages",
        "parent",
        "priority",
        "queued",
        "store_failures",
        "store_place",
        "stored",
        "stored_since",
        "with_pages",
    )

    def __init__(
        self, node_id: int, parent: Node | None, key: Rows, label: bytes, end: int, components: int
    ) -> None:
        self.id = node_id
        self.parent = parent
        self.key = key
        self.label = label
        self.end_page = end
        self.children: dict[bytes, Node] = NOTHING
        self.pages, self.locks = _bare(components)
        self.with_pages = (0, 0)
        self.last_use = [0] * components
        self.live_distance = NONE
        self.child_distances: dict[int, int] = NOTHING
        self.children_in_reach: dict[int, Node] = NOTHING
        self.inserted = 0
        self.hits = 0
        self.priority = 0
        self.marks = NO_MARKS
        self.queued = 0
        self.host_refused = 0
        self.legs: tuple[Leg, ...] = ()
        self.digests: tuple[bytes, ...] | None = None
        self.stored = self.stored_since = self.store_failures = self.store_place = 0

    def __repr__(self) -> str:
        sides = "".join(
            letter if pages is not None else "-"
            for tier, letter in ((DEVICE, "D"), (HOST, "H"))
            for pages in self.pages[tier]
        )
        return f"<node {self.id} ..{self.end_page} {sides} use {self.last_use}>"


def set_pages(node: Node, tier: int, index: int, pages: Pages | None) -> None:
    """Store the pages of a component on the tier."""
    device, host = node.pages
    row = host if tier else device
    row = (pages,) if len(row) == 1 else (*row[:index], pages, *row[index + 1 :])
    node.pages = (device, row) if tier else (row, host)


def count_child(node: Node, tier: int, by: int) -> None:
    """Change the number of children that have the backbone on the tier."""
    device, host = node.with_pages
    node.with_pages = (device, host + by) if tier else (device + by, host)


def drop_leg(node: Node, leg: Leg) -> None:
    """A leg of the node has ended."""
    if leg not in node.legs:
        raise CoreBug(f"{node} ends a leg that it does not have")
    node.legs = tuple([one for one in node.legs if one is not leg])


def own_locks(node: Node, tier: int) -> tuple[dict[int, Receipt], ...]:
    """The locks of a node on the tier, in dictionaries of its own."""
    device, host = node.locks
    row = host if tier else device
    if row[0] is NOTHING:
        row = tuple([{} for _ in row])
        node.locks = (device, row) if tier else (row, host)
    return row


def drop_locks(node: Node) -> None:
    """Let a node without locks share the empty ones."""
    if not is_locked(node):
        node.locks = _bare(len(node.last_use))[1]


def is_locked(node: Node) -> bool:
    """Whether a receipt locks any copy of the node."""
    for row in node.locks:
        for holders in row:
            if holders:
                return True
    return False


class Receipt:
    """What one holder locked: (node, tier) by component. A release undoes exactly this list.

    When a node is split, each half that gets pages of the component keeps the lock. of_storage: it
    belongs to a fetch or store, which locks host copies only.
    """

    __slots__ = ("id", "locked", "name", "of_storage")

    def __init__(
        self,
        receipt_id: int,
        name: str,
        locked: list[list[tuple[Node, int]]],
        of_storage: bool = False,
    ) -> None:
        self.id = receipt_id
        self.name = name
        self.locked = locked
        self.of_storage = of_storage


@dataclass(slots=True, eq=False)
class Pin:
    """A prefix that stays on a tier as soon as it is there.

    held_pages: its receipt locks what the boundary at this page requires.
    """

    id: PinId
    key: Key
    tier: Tier
    receipt: Receipt
    held_pages: int = 0


class Leg:
    """One node's part of a transfer: page numbers of `component` from one tier to the other.

    node is None after a flush: the target pages still belong to the flight. The source pages are on
    loan and the target pages are lent until the leg ends. A leg of a fetch has no node and no
    source, and its first target page is for page depth `first_page`. A leg of a store has no
    target.
    """

    __slots__ = ("component", "first_page", "flight", "node", "source", "target")

    def __init__(
        self,
        flight: Flight,
        node: Node | None,
        component: int,
        source: Pages,
        target: Pages,
        first_page: int = 0,
    ) -> None:
        self.flight = flight
        self.node = node
        self.component = component
        self.source = source
        self.target = target
        self.first_page = first_page


class FlightKind(StrEnum):
    """The kind of action that is in flight."""

    LOAD = "load"
    BACKUP = "backup"
    PREFILL = "prefill"
    LOOKUP = "lookup"
    FETCH = "fetch"
    STORE = "store"
    DELETE = "delete"


class Flight:
    """One action in flight.

    request      the admitted request that it is for; of a lookup or fetch, the first of its
                 waiters. NO_REQUEST for a backup or store, after the request is gone, and after a
                 load has landed.
    receipt      its locks until the reply; None if it has none.
    legs         load, backup, fetch or store: its copies that have not ended.
    lent         prefill: [component], device pages on loan to it.
    frees        backup that an eviction waits for: [component], the device pages that can go when
                 it ends.
    evicts       backup: whether an eviction waits for it.
    gives_up     load: [component], host pages that it frees when it has landed.
    read_by      load whose request is gone: the pass of that request, which still reads what the
                 load brings; 0 if there is none.
    end_token    prefill: the token at which it ends.
    follows      prefill: the pass of the same request that was in flight when it began, and that
                 ends before it; 0 if there was none.
    checkpoints  prefill: (component, depth in tokens, slot) of the states that it stores.
    abandoned    lookup, fetch, store or delete: nobody needs it any more.
    beliefs_since  lookup, fetch, store or delete: `State.beliefs_since` when it began.
    waiters      lookup or fetch: the requests that wait for it, in the order of their arrival.
    first_page   lookup or fetch: the depth of the first of `digests`, the pages that it is about.
    asked_pages, found_pages  lookup or fetch: pages that were looked up and that were found.
    budget_tokens  lookup or fetch: tokens that count against the budget of prefetches.
    key          lookup or fetch: the prefix that ends with the last of its pages.
    """

    __slots__ = (
        "abandoned",
        "asked_pages",
        "beliefs_since",
        "budget_tokens",
        "checkpoints",
        "digests",
        "end_token",
        "evicts",
        "first_page",
        "follows",
        "found_pages",
        "frees",
        "gives_up",
        "id",
        "key",
        "kind",
        "legs",
        "lent",
        "read_by",
        "receipt",
        "request",
        "waiters",
    )

    def __init__(
        self, flight_id: FlightId, kind: FlightKind, request: RequestId, frees: list[int]
    ) -> None:
        self.id = flight_id
        self.kind = kind
        self.request = request
        self.receipt: Receipt | None = None
        self.legs: list[Leg] = []
        self.lent: list[Pages] = []
        self.frees = frees
        self.evicts = False
        self.gives_up: list[int] = []
        self.read_by: FlightId = 0
        self.end_token = 0
        self.follows: FlightId = 0
        self.checkpoints: list[tuple[int, int, int]] = []
        self.abandoned = False
        self.beliefs_since = 0
        self.waiters: list[RequestId] = []
        self.first_page = 0
        self.digests: tuple[bytes, ...] = ()
        self.asked_pages = 0
        self.found_pages = 0
        self.budget_tokens = 0
        self.key: Key | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id} for request {self.request}>"
