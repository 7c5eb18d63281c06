"""Keys and values as rows, for every kind of layer that has them.

Keys and values of the same shape are two parts of a row. With other widths, as of a latent and its
rotary key, they stand side by side in one part. With other heads, each are rows of their own.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import UnsupportedModelError
from .base import Past, Rows, RowsOf, Seen


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
    dtype = keys.dtype
    if values.dtype != dtype:
        raise UnsupportedModelError(
            f"cache layer {type(layer).__name__}: expected keys and values of one type, found "
            f"{dtype} and {values.dtype}, as under torch.autocast; load the model in the type that "
            "it is to compute in"
        )
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
        (tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=2))[0].transpose(0, 1)
        for tensors in (seen.keys, seen.values)
    )
    if len(rows) == 2:
        return {rows[0].name: keys.unsqueeze(1), rows[1].name: values.unsqueeze(1)}
    if rows[0].widths:
        return {rows[0].name: torch.cat((keys, values), dim=-1).unsqueeze(1)}
    return {rows[0].name: torch.stack((keys, values), dim=1)}
