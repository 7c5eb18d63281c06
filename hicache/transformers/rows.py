"""Pages of device pools as rows of torch tensors: reads and writes rows by token.

A row of a token is in the page of its position. Rows per page and states are one row of a page.
Does not know cache layers, see `layers`, or which pages a request has, see `passes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hicache.core.types import Pages, Tier
from hicache.memory.table import PoolTable

from .describing import Described, DescribedLayer
from .layers.base import Rows


class PagedRows:
    """The device pools of a table, in the types of their elements."""

    def __init__(self, described: Described, table: PoolTable[Any]) -> None:
        self._page_size = described.page_size
        dtypes = {
            layer.pools[one.name]: one.dtype
            for cache in described.caches
            for layer in cache.layers
            for one in layer.rows
        }
        self._pools: dict[str, torch.Tensor] = {}
        self._layers: dict[str, tuple[int, ...]] = {}
        for component in described.components:
            for pool in table.pools(Tier.DEVICE, component):
                name = pool.plan.pool.name
                if name in dtypes:
                    flat = pool.flat
                    flat = flat if isinstance(flat, torch.Tensor) else torch.from_numpy(flat)
                    size = pool.plan.sizes
                    shape = (size.layer, size.part, size.page, size.token, size.head, -1)
                    self._pools[name] = flat.view(dtypes[name]).view(shape)
                    self._layers[name] = pool.plan.pool.layers

    def _of(self, layer: DescribedLayer, one: Rows) -> torch.Tensor:
        """The rows of one layer: [part, page, row, head, element]."""
        name = layer.pools[one.name]
        return self._pools[name][self._layers[name].index(layer.number)]

    def read(
        self, layer: DescribedLayer, one: Rows, pages: torch.Tensor, first: int, end: int
    ) -> torch.Tensor:
        """Rows first..end-1 of a request whose pages by position are `pages`, int64[n]: a copy,
        [rows, parts, heads, elements]."""
        pool = self._of(layer, one)
        per_page = pool.shape[2]
        chosen = pages[first // per_page : -(-end // per_page)]
        rows = pool.index_select(1, chosen).flatten(1, 2)
        skipped = first - first // per_page * per_page
        return rows[:, skipped : skipped + end - first].transpose(0, 1)

    def write(
        self,
        layer: DescribedLayer,
        one: Rows,
        pages: torch.Tensor,
        first: int,
        rows: torch.Tensor,
    ) -> None:
        """Write rows first.. of a request. Rows in pages that it does not have (-1) are left
        out."""
        if not len(rows):
            return
        pool = self._of(layer, one)
        per_page = pool.shape[2]
        numbers = torch.arange(first, first + len(rows), device=pages.device)
        into = pages[numbers // per_page]
        there = into >= 0
        if not bool(there.all()):
            numbers, into, rows = numbers[there], into[there], rows[there]
        pool[:, into, numbers % per_page] = rows.transpose(0, 1)

    def read_page(self, layer: DescribedLayer, one: Rows, page: int) -> torch.Tensor:
        """The one row of a page: a copy, [1, parts, heads, elements]."""
        return self._of(layer, one)[:, page].transpose(0, 1).clone()

    def write_page(self, layer: DescribedLayer, one: Rows, page: int, row: torch.Tensor) -> None:
        """Write the one row of a page."""
        self._of(layer, one)[:, page] = row.transpose(0, 1)


def as_tables(tables: Mapping[str, Pages], device: torch.device) -> dict[str, torch.Tensor]:
    """Page tables of the core as tensors, by component."""
    return {
        name: torch.from_numpy(np.array(pages, dtype=np.int64)).to(device)
        for name, pages in tables.items()
    }
