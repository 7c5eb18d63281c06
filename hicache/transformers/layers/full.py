"""Full attention: keys and values of every token, or a latent and its rotary key."""

from __future__ import annotations

from typing import Any

from ._attention import attention_rows, put_attention, taken_attention
from .base import FULL, New, Past, Positional, RowsOf, Seen, Span


class Full(Positional):
    classes: tuple[str, ...] = ("DynamicLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return attention_rows("kv", FULL, layer)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        put_attention(layer, rows, past)

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return taken_attention(rows, seen)


KIND = Full()
