"""Layers with states and attention side by side: the rows of both."""

from __future__ import annotations

from typing import Any

from . import full, state, window
from .base import STATE, LayerKind, New, Past, RowsOf, Seen, Span


class Hybrid:
    """states, and the keys and values of full attention or of a window, as the layer has them."""

    classes = (
        "LinearAttentionAndFullAttentionLayer",
        "LinearAttentionAndSlidingWindowAttentionLayer",
    )

    def prepare(self, layer: Any) -> None:
        pass

    def rows(self, layer: Any) -> RowsOf:
        return (*_attention(layer).rows(layer), *state.KIND.rows(layer))

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        _attention(layer).put(layer, _without_states(rows), past, tokens, tail)
        state.KIND.put(layer, tuple(one for one in rows if one.component == STATE), past, 0, None)

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return _attention(layer).take(layer, _without_states(rows), seen, span)

    def state(self, layer: Any) -> New:
        return state.KIND.state(layer)

    def tail(self, layer: Any) -> Any:
        return None


def _attention(layer: Any) -> LayerKind:
    if getattr(layer, "is_sliding", False):
        return window.KIND
    return full.KIND


def _without_states(rows: RowsOf) -> RowsOf:
    return tuple(one for one in rows if one.component != STATE)


KIND = Hybrid()
