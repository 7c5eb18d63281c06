"""What a replayed policy is: pages are used one by one, and some of them are in the cache.

Each file beside this one has `SUMMARY` and `make(capacity)`. A policy decides at each use, knows
nothing of the tree, and may push out a page of the very request that it serves.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Protocol


class Policy(Protocol):
    @property
    def resident(self) -> Container[int]:
        """The pages in the cache; one object for the whole replay."""

    def use(self, pages: Iterable[int]) -> None:
        """Uses the pages in this order. A page that is not in the cache is inserted."""


def leading(pages: Sequence[int], resident: Container[int]) -> int:
    """How many pages there are before the first one that is not in the cache."""
    for place, page in enumerate(pages):
        if page not in resident:
            return place
    return len(pages)
