"""Rows of one request between its pages and the layers of a library's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hicache.core.actions import StateSlots
from hicache.core.types import Pages, Tier
from hicache.memory.pools import PoolTable

from .describing import Described
from .layers import STATE, New, Past


class PagedRows:
    """Pages of device pools as rows of torch tensors, in the types of their elements. A row of a
    token is in the page of its position. A state is one row of a page."""

    def __init__(self, described: Described, table: PoolTable, device: torch.device) -> None:
        self.device, self.layers = device, described.cache.layers
        self.positional = [name for name in described.components if name != STATE]
        pools = {
            pool.plan.pool.name: pool
            for component in described.components
            for pool in table.pools(Tier.DEVICE, component)
        }
        # by layer and rows: [part, page, row, head, element]
        self.of: list[dict[str, torch.Tensor]] = [{} for _ in self.layers]
        for number, layer in enumerate(self.layers):
            for rows in layer.rows:
                pool = pools[layer.pools[rows.name]]
                flat: Any = pool.flat
                flat = flat if isinstance(flat, torch.Tensor) else torch.from_numpy(flat)
                size = pool.plan.sizes
                shape = (size.layer, size.part, size.page, size.token, size.head, -1)
                at = pool.plan.pool.layers.index(number)
                self.of[number][rows.name] = flat.view(rows.dtype).view(shape)[at]


class RequestPages:
    """The device pages of one request. tables: by component; slots: of states."""

    def __init__(self, rows: PagedRows, tables: Sequence[Pages], slots: StateSlots | None) -> None:
        self._rows, self._slots = rows, slots
        self._tables = {
            name: torch.from_numpy(np.array(pages, dtype=np.int64)).to(rows.device)
            for name, pages in zip(rows.positional, tables, strict=True)
        }

    def read(self, tokens: int) -> list[Past]:
        """Copies of the rows of the first tokens that the next one needs, by layer."""
        found: list[Past] = []
        for layer, pools in zip(self._rows.layers, self._rows.of, strict=True):
            past = {}
            for one in layer.rows:
                pool = pools[one.name]
                if one.component == STATE:
                    assert self._slots is not None, "a model with states has slots"
                    page = self._slots.source if self._slots.source >= 0 else self._slots.working
                    past[one.name] = pool[:, page].transpose(0, 1).clone()
                    continue
                first, per_page = one.first_needed(tokens), pool.shape[2]
                pages = self._tables[one.component][first // per_page : -(-tokens // per_page)]
                rows, skipped = pool.index_select(1, pages).flatten(1, 2), first % per_page
                past[one.name] = rows[:, skipped : skipped + tokens - first].transpose(0, 1)
            found.append(past)
        return found

    def write(self, new: Sequence[New], begin: int, first: int, end: int) -> None:
        """Write rows of tokens first..end-1; those in pages that the request does not have (-1)
        are left out. new: rows from token `begin` on, by layer."""
        numbers = torch.arange(first, end, device=self._rows.device)
        for layer, pools, added in zip(self._rows.layers, self._rows.of, new, strict=True):
            for one in layer.rows:
                if one.name in added and len(numbers):
                    pool = pools[one.name]
                    into = self._tables[one.component][numbers // pool.shape[2]]
                    there = into >= 0
                    rows = added[one.name][first - begin : end - begin][there]
                    pool[:, into[there], numbers[there] % pool.shape[2]] = rows.transpose(0, 1)

    def write_states(self, states: Sequence[New], page: int) -> None:
        """Write the states of all layers to one page."""
        for pools, added in zip(self._rows.of, states, strict=True):
            for name, row in added.items():
                pools[name][:, page] = row.transpose(0, 1)
