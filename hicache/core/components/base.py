"""What a component is: the answer to one question, and nothing else follows from its name.

    If a request's prefix ends at this node, which nodes on the path must hold this component?

`required` is the definition; `window_pages` is what the core goes by, and the contract suite of
components holds matching by it to the definition on random paths. A component must not touch pools,
transfers or other components.

    a node is required by a boundary b on or below it iff b.end_page - node.end_page < window_pages
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..types import Pages

UNBOUNDED = 1 << 40


class Component(Protocol):
    """One attention type's residency rule.

    positional   whether a node holds one page per page of its run; otherwise it holds one state,
                 at its end, which a request copies before it overwrites it (copy on use).
    window_pages pages right above a boundary that it requires (UNBOUNDED: all of them; 1: the node
                 that ends there).
    slots        pages of an admitted request's own besides those by position: a working state and
                 the halves of a ping-pong buffer for checkpoints; 0 for a positional component.
    least_slots  what a request cannot run without; with fewer than `slots` nothing is kept of it.
    least_pages  the smallest device pool that any request can run in.
    interval     tokens between depths at which a boundary can be made.
    per_path     states kept on one path; 0 is all of them.
    """

    @property
    def name(self) -> str: ...

    @property
    def positional(self) -> bool: ...

    @property
    def window_pages(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def least_slots(self) -> int: ...

    @property
    def least_pages(self) -> int: ...

    @property
    def interval(self) -> int: ...

    @property
    def per_path(self) -> int: ...

    def required(self, lengths: Sequence[int]) -> range:
        """Indices of the path's nodes that must hold the component; lengths: pages per node."""

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        """What the upper and the lower half hold when a node splits `at` pages from its start."""
