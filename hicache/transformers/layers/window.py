"""Sliding windows: keys and values of the last tokens.

The library keeps one token less than the window, which is what the next token attends to beside
itself. Of every token of a pass, the rows are taken when the layer is given them, since the layer
itself drops those that leave its window.
"""

from __future__ import annotations

from typing import Any

from ._attention import attention_rows, put_attention, taken_attention
from .base import WINDOW, New, Past, Positional, RowsOf, Seen, Span


class Window(Positional):
    classes: tuple[str, ...] = ("DynamicSlidingWindowLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return attention_rows("window", WINDOW, layer, layer.sliding_window)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        put_attention(layer, rows, past)
        layer.cumulative_length = tokens

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return taken_attention(rows, seen)


KIND = Window()
