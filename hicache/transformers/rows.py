"""Rows of one request between its pages and the layers of a library's cache: reads and writes rows
by token, and puts the past of a request into new layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hicache.core.actions import StateSlots
from hicache.core.types import Pages, Tier
from hicache.memory.pools import PoolTable

from .describing import Described, DescribedCache, DescribedLayer
from .layers import STATE, New, Past, Rows, Span


class PagedRows:
    """Pages of device pools as rows of torch tensors, in the types of their elements. A row of a
    token is in the page of its position. Rows per page and states are one row of a page."""

    def __init__(self, described: Described, table: PoolTable) -> None:
        dtypes = {
            layer.pools[one.name]: one.dtype
            for layer in described.cache.layers
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


class RequestPages:
    """The device pages of one request, for all models. tables: by component; slots: of states."""

    def __init__(
        self,
        rows: PagedRows,
        positional: Sequence[str],
        tables: Sequence[Pages],
        slots: StateSlots | None,
        device: torch.device,
    ) -> None:
        self.rows, self.device = rows, device
        self.tables = {
            name: torch.from_numpy(np.array(pages, dtype=np.int64)).to(device)
            for name, pages in zip(positional, tables, strict=True)
        }
        self.slots = slots


def read(pages: RequestPages, described: DescribedCache, span: Span) -> list[Past]:
    """The rows before a span of tokens by layer, which are on device."""
    return [
        {rows.name: _read(pages, one, rows, span) for rows in one.rows} for one in described.layers
    ]


def write(
    pages: RequestPages, described: DescribedCache, new: Sequence[New], span: Span, part: Span
) -> None:
    """Write the rows of some tokens. new: as `taken` returned it for the span. part: the tokens to
    write, within the span."""
    for one, layer in zip(described.layers, new, strict=True):
        for rows in one.rows:
            if rows.name in layer:
                per_row = span.page_size if rows.per_page else rows.tokens_per_row
                begin, first, end = (
                    tokens // per_row for tokens in (span.first, part.first, part.end)
                )
                table = pages.tables[rows.component]
                chosen = layer[rows.name][first - begin : end - begin]
                pages.rows.write(one, rows, table, first, chosen)


def write_states(
    pages: RequestPages, described: DescribedCache, states: Sequence[New], page: int
) -> None:
    """Write the states of all layers to one page."""
    for one, layer in zip(described.layers, states, strict=True):
        for rows in one.rows:
            if rows.name in layer:
                pages.rows.write_page(one, rows, page, layer[rows.name])


def _read(pages: RequestPages, described: DescribedLayer, one: Rows, span: Span) -> torch.Tensor:
    tokens = span.first
    if one.component == STATE:
        assert pages.slots is not None, "a model with states has slots"
        slots = pages.slots
        page = slots.source if slots.source >= 0 else slots.working
        return pages.rows.read_page(described, one, page)
    table = pages.tables[one.component]
    if one.per_page:
        page = int(table[tokens // span.page_size - 1])
        return pages.rows.read_page(described, one, page)
    first = one.first_needed(tokens)
    return pages.rows.read(described, one, table, first, tokens // one.tokens_per_row)
