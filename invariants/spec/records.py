"""The records of the specified cache: nodes, requests, pins, and actions without their reply.

page    a number that is given out once and never again, so equal numbers mean equal contents
hold    a set of pages that somebody uses. A page in no hold is unlocked
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hicache.core.types import Key, Pages, Tier

DEVICE, HOST = BOTH = Tier.DEVICE, Tier.HOST
Hold = set[int]
Rank = tuple[int, ...]


class Node:
    """A run of pages below its parent. copies[tier][kind]: its pages, or None. A copy of a state is
    one page. made: how many nodes were made before it; of a node that is divided, the lower half
    stays the node that it was."""

    def __init__(
        self, made: int, parent: Node | None, namespace: str, rows: list[bytes], kinds: int
    ) -> None:
        self.made = made
        self.parent = parent
        self.namespace = namespace
        self.rows = rows
        self.end: int = len(rows) + (parent.end if parent is not None else 0)
        self.children: list[Node] = []
        self.copies: list[list[list[int] | None]] = [[None] * kinds, [None] * kinds]
        self.last_use = [0] * kinds
        self.inserted = 0
        self.hits = 0
        self.priority = 0
        self.refused_by_host: set[int] = set()  # kinds
        self.failures = 0  # stores that failed since its last use
        self.digests: list[bytes] = []  # of its pages, once somebody asked

    @property
    def start(self) -> int:
        return self.end - len(self.rows)

    def has(self, tier: int, kind: int) -> bool:
        return self.copies[tier][kind] is not None

    def anywhere(self, kind: int) -> bool:
        return self.has(DEVICE, kind) or self.has(HOST, kind)

    def pages(self, tier: int, kind: int) -> list[int]:
        """The pages of a copy that the node has."""
        pages = self.copies[tier][kind]
        assert pages is not None
        return pages

    def is_in_use(self, hold: Hold, tier: int, kind: int) -> bool:
        """Whether there is a copy, and it is in the hold; as a whole then."""
        pages = self.copies[tier][kind]
        return pages is not None and pages[0] in hold

    def any_in_use(self, hold: Hold, tier: int) -> bool:
        return any(self.is_in_use(hold, tier, kind) for kind in range(len(self.copies[tier])))


class Move(NamedTuple):
    """One page that a transfer copies."""

    kind: int
    source: int
    target: int


@dataclass(eq=False)
class Transfer:
    """An action without its reply. to: the tier that it copies to; None for a pass.

    moves: what is copied. hold: what it uses. on_loan: by kind, the pages that a pass may write or
    read. request: whose it is; None if nobody's. frees: by kind, the device pages that can go when
    this copy to host has ended, if an eviction waits for it. gives_up: by kind, the host pages that
    it frees when it has landed.
    """

    number: int
    to: Tier | None
    request: Request | None = None
    moves: list[Move] = field(default_factory=list)
    hold: Hold = field(default_factory=set)
    on_loan: dict[int, set[int]] = field(default_factory=dict)
    frees: dict[int, int] = field(default_factory=dict)
    gives_up: dict[int, int] = field(default_factory=dict)
    end_token: int = 0
    checkpoints: list[tuple[int, int, int]] = field(default_factory=list)  # kind, tokens, slot

    def of(self, kind: int) -> list[Move]:
        return [move for move in self.moves if move.kind == kind]


class Part(NamedTuple):
    """One page on its way between host and storage. depth: where it is in its prompt."""

    kind: int
    depth: int
    digest: bytes
    page: int


@dataclass(eq=False)
class StorageTransfer:
    """An action for storage without its reply. action: "lookup", "fetch", "store" or "delete".

    hold: what it uses. parts: the pages that it fills or reads. abandoned: nobody waits for it.
    outdated: storage was attached again since it began, so its reply says nothing of this storage.

    A lookup or fetch: key: the prompt for which it began, as far as it goes. first: the page from
    which on something is missing. asked_pages, found_pages: after that; 0 found during a lookup.
    flushed: the tree that it was for is gone.
    """

    number: int
    action: str
    hold: Hold = field(default_factory=set)
    parts: list[Part] = field(default_factory=list)
    abandoned: bool = False
    outdated: bool = False
    key: Key = field(default_factory=lambda: Key(b"", 1))
    first: int = 0
    asked_pages: int = 0
    found_pages: int = 0
    flushed: bool = False

    @property
    def pages(self) -> int:
        """How far a lookup or fetch goes, in pages after the first."""
        return self.key.pages - self.first


@dataclass(eq=False)
class Request:
    """A waiting or running request.

    tables: by kind, device pages by position (None: no page), or slots of states: working, then two
    checkpoints. shared: leading pages that belong to nodes. computed: leading tokens that are
    computed. filled: leading pages for which windows have pages. cleared: by kind, leading pages
    whose window has passed. branch: pages of the prompt that the tree knew at admission. states: by
    kind, the tokens of the state in each checkpoint slot, 0 for none. refilled: tokens that it may
    have computed when it last got a slot back. sources: by kind, the state that its next pass
    starts from.
    """

    number: int
    key: Key
    length: int
    match_pages: int
    priority: int
    may_load: bool = True
    hold: Hold = field(default_factory=set)
    tables: list[list[int | None]] = field(default_factory=list)
    shared: int = 0
    computed: int = 0
    filled: int = 0
    cleared: list[int] = field(default_factory=list)
    branch: int = 0
    states: list[list[int]] = field(default_factory=list)
    refilled: int = 0
    sources: list[int | None] = field(default_factory=list)
    load: Transfer | None = None
    prefetch: StorageTransfer | None = None


@dataclass(eq=False)
class Pin:
    """A prefix that stays on a tier. held_pages: those of it that are in the hold."""

    key: Key
    tier: Tier
    hold: Hold = field(default_factory=set)
    held_pages: int = 0


def as_pages(pages: Sequence[int | None]) -> Pages:
    """int64[n], with -1 where there is no page."""
    return np.array([-1 if page is None else page for page in pages], dtype=np.int64)
