"""Keys and values as rows: full attention, windows, and what an indexer keeps beside them.

Keys and values of the same shape are two parts of a row. With other widths, as of a latent and its
rotary key, they stand side by side in one part. With other heads, each are rows of their own.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import UnsupportedModelError
from .base import FULL, WINDOW, New, Past, Positional, Rows, RowsOf, Seen, Span


class Full(Positional):
    """Keys and values of every token, or a latent and its rotary key."""

    classes: tuple[str, ...] = ("DynamicLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return attention_rows("kv", FULL, layer)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        put_attention(layer, rows, past)

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return taken_attention(rows, seen)


class Window(Full):
    """Keys and values of the last tokens.

    The library keeps one token less than the window, which is what the next token attends to beside
    itself. Of every token of a pass, the rows are taken when the layer is given them, since the
    layer itself drops those that leave its window."""

    classes = ("DynamicSlidingWindowLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return attention_rows("window", WINDOW, layer, layer.sliding_window)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        put_attention(layer, rows, past)
        layer.cumulative_length = tokens

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return taken_attention(rows, seen)


class Indexed(Full):
    """Sparse attention: beside keys and values, the indexer's keys, by which a query selects the
    tokens that it reads. A layer that reuses the selection of another one has none."""

    classes = ("DynamicIndexedLayer",)

    def rows(self, layer: Any) -> RowsOf:
        rows = super().rows(layer)
        keys = layer.indexer_keys
        if keys is None:
            return rows
        indexer = Rows(
            *("indexer", FULL, "indexer", ("k",), 1, keys.shape[-1], keys.dtype),
            follows=rows[0].name,
        )
        return (*rows, indexer)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        super().put(layer, _without_indexer(rows), past, tokens, tail)
        if "indexer" in past:
            keys = past["indexer"][:, 0, 0].unsqueeze(0)
            layer.lazy_initialization_indexer(keys)
            layer.indexer_keys = keys

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        new = super().take(layer, _without_indexer(rows), seen, span)
        if seen.indexer:
            new["indexer"] = torch.cat(seen.indexer, dim=1)[0][:, None, None]
        return new


class Empty(Positional):
    """Layers that keep nothing: those without attention, and those that read another layer's
    cache."""

    classes = ("DummyLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return ()

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        pass

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return {}


def _without_indexer(rows: RowsOf) -> RowsOf:
    return tuple(one for one in rows if one.name != "indexer")


KINDS = (Full(), Window(), Indexed(), Empty())


def attention_rows(
    name: str, component: str, layer: Any, window_tokens: int = 0
) -> tuple[Rows, ...]:
    """The rows of a layer's keys and values [1, heads, tokens, elements]."""
    keys, values = layer.keys, layer.values
    if keys is None:
        raise UnsupportedModelError(
            f"cache layer {type(layer).__name__}: expected keys and values after a pass, found "
            "none; the model does not fill the library's DynamicCache"
        )
    heads, width = keys.shape[1], keys.shape[-1]
    value_heads, value_width = values.shape[1], values.shape[-1]
    dtype = torch.promote_types(keys.dtype, values.dtype)  # under torch.autocast they differ
    if keys.shape == values.shape:
        parts = ("k", "v")
        return (
            Rows(*(name, component, "kv", parts, heads, width, dtype), window_tokens=window_tokens),
        )
    if heads == value_heads:
        return (
            Rows(
                *(name, component, "latent", ("latent",), heads, width + value_width, dtype),
                (width, value_width),
                window_tokens=window_tokens,
            ),
        )
    return (
        Rows(
            *(f"{name}_keys", component, "kv", ("k",), heads, width, dtype),
            window_tokens=window_tokens,
        ),
        Rows(
            *(f"{name}_values", component, "kv", ("v",), value_heads, value_width, dtype),
            follows=f"{name}_keys",
            window_tokens=window_tokens,
        ),
    )


def put_attention(layer: Any, rows: RowsOf, past: Past) -> None:
    """Give a new layer its keys and values."""
    tensors: list[torch.Tensor] = []
    for one in rows:
        there = past[one.name]
        for part in range(len(one.parts)):
            tensors += torch.split(there[:, part], list(one.widths or (one.head_elements,)), dim=-1)
    keys, values = (tensor.transpose(0, 1).unsqueeze(0) for tensor in tensors)
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values


def taken_attention(rows: RowsOf, seen: Seen) -> dict[str, torch.Tensor]:
    """The rows of the keys and values that a layer was given in a pass."""
    keys, values = (
        (tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=2))[0]
        .transpose(0, 1)
        .to(rows[0].dtype)
        for tensors in (seen.keys, seen.values)
    )
    if len(rows) == 2:
        return {rows[0].name: keys.unsqueeze(1), rows[1].name: values.unsqueeze(1)}
    if rows[0].widths:
        return {rows[0].name: torch.cat((keys, values), dim=-1).unsqueeze(1)}
    return {rows[0].name: torch.stack((keys, values), dim=1)}
