"""A host page as the bytes that a store keeps: the same bytes in any layout of the host tier.

The bytes are the page in canonical order: layer, part, token, head, bytes of a head. Where the
layout keeps enough of them side by side, a store can read and write the page in its place; else
they are copied to and from a buffer. Does not call a store or make keys; see
`hicache/runtime/storage`.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hicache.core.types import Tier

from .layouts import Bytes, canonical
from .pools import PoolPlan
from .table import PoolTable

MOST_BUFFERS = 256  # of a page in its place; a page of more runs is copied


class StoredPool:
    """The pages of one host pool. shared: every rank has the same bytes, because the one head of a
    row cannot be divided."""

    __slots__ = ("_starts", "_step", "_view", "flat", "name", "page_bytes", "run_bytes", "shared")

    def __init__(self, plan: PoolPlan, flat: Bytes) -> None:
        """flat: all memory of the pool."""
        self.name = plan.pool.name
        self.page_bytes = plan.page_bytes
        self.shared = plan.pool.replicated
        self.flat = flat.data
        self._view = canonical(flat.reshape(plan.shape), plan.layout)
        layer, self._step, *inner = self._view.strides
        steps = [layer, *inner]
        sizes = [self._view.shape[0], *self._view.shape[2:]]
        self.run_bytes = sizes.pop()
        steps.pop()
        while sizes and (steps[-1] == self.run_bytes or sizes[-1] == 1):
            self.run_bytes *= sizes.pop()
            steps.pop()
        places = product(*(range(size) for size in sizes))
        self._starts = [sum(map(int.__mul__, place, steps)) for place in places]

    @property
    def in_place(self) -> bool:
        """Whether `buffers` are few enough for a store to use them."""
        return len(self._starts) <= MOST_BUFFERS

    def buffers(self, page: int) -> tuple[memoryview, ...]:
        """The memory of the page: its runs, in the order of the stored bytes."""
        base = page * self._step
        return tuple(
            self.flat[base + start : base + start + self.run_bytes] for start in self._starts
        )

    def save(self, page: int, target: memoryview) -> None:
        """Copy the page's bytes to a buffer."""
        page_view = self._view[:, page]
        np.copyto(np.frombuffer(target, dtype=np.uint8).reshape(page_view.shape), page_view)

    def load(self, page: int, source: memoryview) -> None:
        """Copy the page's bytes from a buffer."""
        page_view = self._view[:, page]
        np.copyto(page_view, np.frombuffer(source, dtype=np.uint8).reshape(page_view.shape))


def stored_pools(table: PoolTable[Any]) -> dict[str, tuple[StoredPool, ...]]:
    """The host pools that have bytes, by component: its own and its sidecars. Works with numpy
    arrays and with torch tensors in host memory."""
    return {
        component: tuple(
            StoredPool(pool.plan, np.asarray(pool.flat))
            for pool in table.pools(Tier.HOST, component)
            if pool.plan.page_bytes
        )
        for component in table.pages[Tier.HOST]
    }
