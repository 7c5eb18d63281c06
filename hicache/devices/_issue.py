"""What a device with real bytes asks of a call before it puts anything on a stream.

Lives here: which pages, layers and seeds a call may name, and the content of the model's own
writes. Must not live here: streams and marks, how bytes move, when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.memory.layouts import Bytes
from hicache.memory.stamp import Words
from hicache.memory.table import PoolTable

from .base import Direction

Content: TypeAlias = Callable[[str, Pages], Words]
Reader: TypeAlias = Callable[[str, Pages, tuple[int, int], tuple[Bytes, ...]], None]
Fault: TypeAlias = Callable[[Direction, str, Pages], bool]


class Issue:
    """Checks of one device's calls. content: as the devices take it, or none."""

    def __init__(self, table: PoolTable[Any], content: Content | None) -> None:
        self._table = table
        self._content = content or self._fresh
        self._written = 0

    def check_pages(
        self, tier: Tier, component: str, pages: Pages, layers: tuple[int, int]
    ) -> None:
        """Raises CallerError for pages or layers that there are not."""
        self._table.check_pages(tier, component, pages)
        most = self._table.model.layers
        if not 0 <= layers[0] <= layers[1] <= most:
            raise CallerError(
                f"layers: expected a range within 0 to {most}, found {layers[0]} to {layers[1]}"
            )

    def check_copy(
        self,
        direction: Direction,
        component: str,
        source: Pages,
        target: Pages,
        layers: tuple[int, int],
        why: str,
    ) -> None:
        """Raises CallerError unless each page has one to go to, and all are there."""
        if len(source) != len(target):
            raise CallerError(
                f"copy for {why}: expected as many targets as sources, "
                f"found {len(source)} and {len(target)}"
            )
        for tier, pages in zip(direction.ends, (source, target), strict=True):
            self.check_pages(tier, component, pages, layers)

    def seeds(self, component: str, pages: Pages, why: str) -> Words:
        """Of what the model writes to the pages, one each. Raises CallerError for another count."""
        seeds = np.array(self._content(component, pages), dtype=np.uint64)
        if len(seeds) != len(pages):
            raise CallerError(f"touch for {why}: expected {len(pages)} seeds, found {len(seeds)}")
        return seeds

    def _fresh(self, component: str, pages: Pages) -> Words:
        first = self._written
        self._written += len(pages)
        return np.arange(first, self._written, dtype=np.uint64)


def check_hold(time_ns: int) -> None:
    if time_ns < 0:
        raise CallerError(f"hold: expected 0 ns or more, found {time_ns}")
