"""Linear attention and convolutions: states that stand for all tokens read so far."""

from __future__ import annotations

from typing import Any

from ._states import put_states, state_rows, taken_states
from .base import New, Past, RowsOf, Seen, Span


class State:
    classes = ("LinearAttentionLayer",)

    def prepare(self, layer: Any) -> None:
        pass

    def rows(self, layer: Any) -> RowsOf:
        return state_rows(layer)

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        put_states(layer, rows, past)

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return {}

    def state(self, layer: Any) -> New:
        return taken_states(layer)

    def tail(self, layer: Any) -> Any:
        return None


KIND = State()
