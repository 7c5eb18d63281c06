"""Layers that keep nothing: those without attention, and those that read another layer's cache."""

from __future__ import annotations

from typing import Any

from .base import New, Past, Positional, RowsOf, Seen, Span


class Empty(Positional):
    classes = ("DummyLayer",)

    def rows(self, layer: Any) -> RowsOf:
        return ()

    def put(self, layer: Any, rows: RowsOf, past: Past, tokens: int, tail: Any) -> None:
        pass

    def take(self, layer: Any, rows: RowsOf, seen: Seen, span: Span) -> New:
        return {}


KIND = Empty()
