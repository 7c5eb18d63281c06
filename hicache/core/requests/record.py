"""The record of a request. Only the modules of the core write to it (see also `radix/node`)."""

from __future__ import annotations

from ..radix.node import Node, Receipt
from ..types import NO_PAGES, FlightId, Key, RequestId


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
    passes         flights of its passes, in the order in which they began and end. load: flight of
                   its load until that has landed, or 0.
    may_load       False after a failed load or forward pass: from then on it recomputes.
    priority       as the caller gave it. Some policies keep its nodes longer if it is higher.
    known_node     while it waits, the deepest node that its last match found whole, or None. It may
                   have been cut or have left the tree since.
    arrived        counts arrivals: lower for a request that arrived earlier.
    prefetch       the lookup or fetch that it waits for while it is not admitted, or 0.
    digests        those of its prompt, while it waits, if a prefetch was to begin; else empty.
    """

    __slots__ = (
        "admitted",
        "arrived",
        "branch_pages",
        "checkpoint_tokens",
        "cleared_pages",
        "computed_tokens",
        "digests",
        "filled_pages",
        "id",
        "key",
        "known_node",
        "length",
        "load",
        "match_pages",
        "may_load",
        "passes",
        "prefetch",
        "priority",
        "receipt",
        "refilled_at_tokens",
        "shared_node",
        "shared_pages",
        "sources",
        "tables",
    )

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
        self.admitted = False
        self.tables = [NO_PAGES]
        self.shared_pages = 0
        self.shared_node: Node | None = None
        self.known_node: Node | None = None
        self.computed_tokens = 0
        self.filled_pages = 0
        self.branch_pages = 0
        self.checkpoint_tokens: list[list[int]] = []
        self.refilled_at_tokens = 0
        self.cleared_pages: list[int] = []
        self.sources: list[int] = []
        self.passes: list[FlightId] = []
        self.load: FlightId = 0
        self.may_load = may_load
        self.priority = priority
        self.arrived = arrived
        self.prefetch: FlightId = 0
        self.digests: tuple[bytes, ...] = ()
        self.receipt: Receipt | None = None
