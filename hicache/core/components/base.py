"""What a component is: the answer to one question, and nothing else follows from its name.

    If a request's prefix ends at this node, which nodes on the path must hold this component?

`required` is the definition. `advance` and `valid` are its incremental form for walking down a
path; tests/contract/test_components.py proves the two equal on random paths. A component must not
touch pools, transfers or other components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..types import Pages


class Component(Protocol):
    """One attention type's residency rule. A walk's state is a small int; `start` begins it."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> int: ...

    def required(self, lengths: Sequence[int]) -> range:
        """Indices of the path's nodes that must hold the component; lengths: pages per node."""

    def pages_for(self, span: int) -> int:
        """Pages that a node of `span` pages holds of this component."""

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        """What the upper and the lower half hold when a node splits `at` pages from its start."""

    def advance(self, walk: int, span: int, held: bool) -> int:
        """The walk's state after a node of `span` pages that holds the component or does not."""

    def valid(self, walk: int) -> bool:
        """Whether every required node was held, for a prefix that ends where the walk stands."""
