"""The records of the core: nodes, receipts, pins, segments, transfers and requests.

They are mutable and have no behaviour. Only the modules of the core write to them, and only inside
`Core.handle`; checks read them. For changes to the tree see `tree`.

    page depth   0          a.end_page   b.end_page
                 |--- a ----|---- b -----|        a.end_page == a.parent.end_page + pages(a)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from .errors import CoreBug
from .types import DEVICE, HOST, NO_PAGES, Key, Pages, PinId, RequestId, Rows, Tier, TransferId

NONE: Final = 1 << 41
FAR: Final = 1 << 39


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
    result = _BARE.get(components)
    if result is None:
        none = (NOTHING,) * components
        result = ((None,) * components,) * 2, (none, none)
        _BARE[components] = result
    return result


class Node:
    """A run of pages below its parent in the radix tree.

    Most nodes have no children, locks or segments, so they share one empty value of each: a tuple,
    or `NOTHING`. A node gets dictionaries of its own when something is put into them.

    key            the run's rows; empty for the root only.
    label          its key in the parent's `children`: its first row, after the namespace if the
                   parent is the root.
    end_page       page depth of its last page.
    pages          [tier][component]: page numbers, or None where the component is not there.
    locks          [tier][component]: the receipts that lock it, by id.
    with_pages     [tier]: how many children have the backbone on that tier.
    last_use       [component]: tick of the last event that used the component at this node.
    live_distance  pages from its end down to the nearest live boundary (see `core`).
    child_distances  [distance]: how many children are at this distance from a live boundary.
    children_in_reach  by id, the children that end within the widest window below its end.
    inserted       tick at which it was inserted into the tree; both halves of a split keep it.
    hits           number of requests that used it.
    priority       the highest priority of these requests.
    queued         bits: which heaps of eviction queues have an entry for it (see lru).
    segments       the segments of transfers that read or fill it.
    host_refused   bits: the components that host did not take when they were to be evicted. Next
                   time they are dropped.
    digests        SHA-256 chain, one per page; None until it is computed.
    stored         bits: the components that storage is believed to have; of no meaning unless
                   `stored_since` is the number in the state.
    store_failures stores of the node that have failed since a request used it.
    store_place    its place in the queue of nodes to store; 0 if it is not in the queue.
    """

    __slots__ = (
        *("child_distances", "children", "children_in_reach", "digests", "end_page", "hits"),
        *("host_refused", "id", "inserted", "key", "label", "last_use", "live_distance", "locks"),
        *("pages", "parent", "priority", "queued", "segments", "store_failures", "store_place"),
        *("stored", "stored_since", "with_pages"),
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
        self.queued = 0
        self.host_refused = 0
        self.segments: tuple[Segment, ...] = ()
        self.digests: tuple[bytes, ...] | None = None
        self.stored = self.stored_since = self.store_failures = self.store_place = 0

    def __repr__(self) -> str:
        sides = "".join(
            letter if pages is not None else "-"
            for tier, letter in ((DEVICE, "D"), (HOST, "H"))
            for pages in self.pages[tier]
        )
        return f"<node {self.id} ..{self.end_page} {sides} use {self.last_use}>"


def copy_of(node: Node, tier: int, index: int) -> Pages:
    """The pages of a component that the node must have on the tier."""
    pages = node.pages[tier][index]
    if pages is None:
        raise CoreBug(f"{node} lacks component {index} on {Tier(tier).name.lower()}")
    return pages


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


def drop_segment(node: Node, segment: Segment) -> None:
    """A segment of the node has ended."""
    if segment not in node.segments:
        raise CoreBug(f"{node} ends a segment that it does not have")
    node.segments = tuple([item for item in node.segments if item is not segment])


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
    on_device, on_host = node.locks
    return any(on_device) or any(on_host)


class Receipt:
    """What one holder locked: (node, tier) by component. A release undoes exactly this list.

    When a node is split, each half that gets pages of the component keeps the lock. of_storage: it
    belongs to a fetch or store, which locks host copies only.
    """

    __slots__ = ("id", "locked", "name", "of_storage")

    def __init__(self, receipt_id: int, name: str, components: int, of_storage: bool) -> None:
        self.id = receipt_id
        self.name = name
        self.locked: list[list[tuple[Node, int]]] = [[] for _ in range(components)]
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


@dataclass(slots=True, eq=False)
class Segment:
    """One node's part of a transfer: page numbers of `component` from one tier to the other.

    node is None after a flush: the target pages still belong to the transfer. The source pages are
    on loan and the target pages are reserved until the segment ends. A segment of a fetch has no
    node and no source, and its first target page is for page depth `first_page`. A segment of a
    store has no target.
    """

    transfer: Transfer
    node: Node | None
    component: int
    source: Pages
    target: Pages
    first_page: int = 0


class TransferKind(StrEnum):
    """The kind of action that is in flight."""

    LOAD = "load"
    BACKUP = "backup"
    PREFILL = "prefill"
    LOOKUP = "lookup"
    FETCH = "fetch"
    STORE = "store"
    DELETE = "delete"


# The members as plain names, since a look-up in the class takes ten times as long.
LOAD, BACKUP, PREFILL, LOOKUP, FETCH, STORE, DELETE = TransferKind


class Transfer:
    """One action in flight.

    request      the admitted request that it is for; of a lookup or fetch, the first of its
                 waiters. NO_REQUEST for a backup or store, after the request is gone, and after a
                 load has landed.
    receipt      its locks until the reply; None if it has none.
    segments     load, backup, fetch or store: its copies that have not ended.
    on_loan      prefill: [component], device pages on loan to it.
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

    receipt: Receipt | None = None
    evicts = False
    read_by: TransferId = 0
    end_token = 0
    follows: TransferId = 0
    abandoned = False
    beliefs_since = 0
    first_page = 0
    digests: tuple[bytes, ...] = ()
    asked_pages = 0
    found_pages = 0
    budget_tokens = 0
    key: Key | None = None

    def __init__(
        self, transfer_id: TransferId, kind: TransferKind, request: RequestId, components: int
    ) -> None:
        self.id = transfer_id
        self.kind = kind
        self.request = request
        self.frees = [0] * components
        self.segments: list[Segment] = []
        self.on_loan: list[Pages] = []
        self.gives_up: list[int] = []
        self.checkpoints: list[tuple[int, int, int]] = []
        self.waiters: list[RequestId] = []

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id} for request {self.request}>"


class Request:
    """A waiting or admitted request.

    length         tokens of the prompt.
    match_pages    the longest prefix that may be reused.
    tables         [component]: device pages. For a positional component by position, at least for
                   `computed_tokens` while admitted, -1 where it has none; otherwise the slots for
                   states: working, then two for checkpoints.
    shared_pages   leading positions whose pages belong to nodes, or will when `load` has landed.
                   Later pages of the tables, and all slots, are the request's own.
    shared_node    the node that ends at `shared_pages`, or None. It is locked, so it stays.
    computed_tokens  tokens whose KV is in the pages of the tables.
    filled_pages   positions for which pages of bounded components were taken.
    branch_pages   pages of the prompt that were known at admission. Other prompts are likely to
                   branch off there.
    checkpoint_tokens  [component][checkpoint slot]: tokens that the slot's state has read; 0: none.
    refilled_at_tokens  tokens that it may have computed when a slot was last refilled.
    cleared_pages  [component]: leading positions whose pages of a bounded component were freed.
    sources        [component]: the page to copy into the working slot before the first pass, or -1.
    passes         transfers of its passes, in the order in which they began and end. load: transfer
                   of its load until that has landed, or 0.
    may_load       False after a failed load or forward pass: from then on it recomputes.
    priority       as the caller gave it. Some policies keep its nodes longer if it is higher.
    known_node     while it waits, the deepest node that its last match found whole, or None. It may
                   have been cut or have left the tree since.
    arrived        counts arrivals: lower for a request that arrived earlier.
    prefetch       the lookup or fetch that it waits for while it is not admitted, or 0.
    digests        those of its prompt, while it waits, if a prefetch was to begin; else empty.
    """

    admitted = False
    shared_pages = 0
    shared_node: Node | None = None
    known_node: Node | None = None
    computed_tokens = 0
    filled_pages = 0
    branch_pages = 0
    refilled_at_tokens = 0
    load: TransferId = 0
    prefetch: TransferId = 0
    digests: tuple[bytes, ...] = ()
    receipt: Receipt | None = None

    def __init__(
        self,
        request_id: RequestId,
        key: Key,
        length: int,
        match_pages: int,
        priority: int,
        arrived: int,
        may_load: bool = True,
    ) -> None:
        self.id = request_id
        self.key = key
        self.length = length
        self.match_pages = match_pages
        self.priority = priority
        self.arrived = arrived
        self.may_load = may_load
        self.tables: list[Pages] = [NO_PAGES]
        self.checkpoint_tokens: list[list[int]] = []
        self.cleared_pages: list[int] = []
        self.sources: list[int] = []
        self.passes: list[TransferId] = []
