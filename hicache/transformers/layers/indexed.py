"""Sparse attention with an indexer: keys and values of every token, and the indexer's keys beside
them, by which a query selects the tokens that it reads."""

from __future__ import annotations

from typing import Any

import torch

from . import full
from .base import FULL, New, Past, Positional, Rows, RowsOf, Seen, Span


class Indexed(Positional):
    """A layer that reuses the selection of another one has no indexer keys."""

    classes = ("DynamicIndexedLayer",)

    def rows(self, layer: Any) -> RowsOf:
        rows = full.KIND.rows(layer)
        keys = layer.indexer_keys
        if keys is None:
            return rows
        indexer = Rows(
            *("indexer", FULL, "indexer", ("k",), 1, keys.shape[-1], keys.dtype),
            follows=rows[0].name,
        )
        return (*rows, indexer)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        full.KIND.put(layer, _attention(rows), past, tokens, tail)
        if "indexer" in past:
            keys = past["indexer"][:, 0, 0].unsqueeze(0)
            layer.lazy_initialization_indexer(keys)
            layer.indexer_keys = keys

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        new = full.KIND.take(layer, _attention(rows), seen, span)
        if seen.indexer:
            new["indexer"] = torch.cat(seen.indexer, dim=1)[0][:, None, None]
        return new


def _attention(rows: RowsOf) -> RowsOf:
    return tuple(one for one in rows if one.name != "indexer")


KIND = Indexed()
