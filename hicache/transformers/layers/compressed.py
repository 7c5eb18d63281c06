"""DeepSeek V4's compressed attention: a window, and entries that stand for groups of tokens.

A layer keeps a window of one tensor, which is key and value at once, and an entry for each whole
group of tokens, with another one for its indexer where it has one. Where groups overlap, the next
entry also needs the last group's own share: one row per page, of the group that ends there. The
tokens of a group that is not whole yet are only with the running request (`tail`); there are none
at the end of a page, which is a multiple of every group.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch

from .base import FULL, WINDOW, New, Past, Positional, Rows, RowsOf, Seen, Span

_PARTS = ("kv", "gate")


class _Tail(NamedTuple):
    buffers: dict[str, tuple[Any, Any]]
    overlaps: dict[str, tuple[Any, Any]]


class Compressed(Positional):
    classes = ("DeepseekV4HCACache", "DeepseekV4CSACache")

    def prepare(self, layer: Any) -> None:
        """Keep the share of every group of the passes to come: the layer keeps the last only."""
        if hasattr(layer, "overlap_kv"):
            layer.shares = {name: [] for name in layer.overlap_kv}
            layer.update_overlap_state = partial(_recorded, layer, layer.update_overlap_state)

    def rows(self, layer: Any) -> RowsOf:
        keys, rate = layer.keys, layer.compress_rate
        window = layer.sliding_window
        rows = [
            Rows(
                *("window", WINDOW, "kv", ("kv",), keys.shape[1], keys.shape[-1], keys.dtype),
                window_tokens=window,
            )
        ]
        for name, entries in layer.compressed_kv.items():
            shape = ("latent", ("latent",), 1, entries.shape[-1], entries.dtype)
            rows.append(Rows(f"{name}_{rate}", FULL, *shape, tokens_per_row=rate))
        for name in getattr(layer, "overlap_kv", ()):
            elements = rate * layer.compressed_kv[name].shape[-1]
            for part in _PARTS:
                dtype = getattr(layer, f"overlap_{part}")[name].dtype
                rows.append(
                    Rows(
                        *(f"{name}_{part}", WINDOW, "state", ("state",), 1, elements, dtype),
                        follows="window",
                        per_page=True,
                        window_tokens=window,
                        shape=(1, rate, elements // rate),
                    )
                )
        return tuple(rows)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        keys = past["window"][:, 0].transpose(0, 1).unsqueeze(0)
        layer.lazy_initialization(keys, keys)
        layer.keys = layer.values = keys
        layer.cumulative_length = tokens
        count = tokens // layer.compress_rate
        for name in layer.compressed_kv:
            layer.compressed_kv[name] = past[f"{name}_{layer.compress_rate}"][:, 0, 0].unsqueeze(0)
            layer.entry_count[name] = count
        shapes = {one.name: one.shape for one in rows if one.per_page}
        for name in getattr(layer, "overlap_kv", ()):
            if tail is None:
                pair = [past[f"{name}_{part}"].reshape(shapes[f"{name}_{part}"]) for part in _PARTS]
            else:
                pair = list(tail.overlaps[name])
            layer.overlap_kv[name], layer.overlap_gate[name] = pair
        if tail is not None:
            for name, (kv, gate) in tail.buffers.items():
                layer.buffer_kv[name], layer.buffer_gate[name] = kv, gate

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        rate = layer.compress_rate
        new = {"window": torch.cat(seen.keys, dim=2)[0].transpose(0, 1).unsqueeze(1)}
        for name, entries in layer.compressed_kv.items():
            new[f"{name}_{rate}"] = entries[0, span.first // rate : span.end // rate, None, None]
        size = span.page_size
        ends = range(span.first // size * size + size, span.end + 1, size)
        for name, shares in getattr(layer, "shares", {}).items():
            for number, part in enumerate(_PARTS):
                groups = [share for pair in shares for share in pair[number]]
                at_ends = [groups[end // rate - 1 - span.first // rate].flatten() for end in ends]
                if at_ends:
                    new[f"{name}_{part}"] = torch.stack(at_ends)[:, None, None]
        return new

    def tail(self, layer: Any) -> Any:
        return _Tail(
            {name: (kv, layer.buffer_gate[name]) for name, kv in layer.buffer_kv.items()},
            {
                name: (kv, layer.overlap_gate[name])
                for name, kv in getattr(layer, "overlap_kv", {}).items()
            },
        )


def _recorded(
    layer: Any, update: Any, name: str, kv: torch.Tensor, gate: torch.Tensor, width: int
) -> Any:
    """Stands before the layer's own method, and keeps the share of each group, [rate, width]."""
    layer.shares[name].append((kv[0, :, :, :width].clone(), gate[0, :, :, :width].clone()))
    return update(name, kv, gate, width)


KINDS = (Compressed(),)
