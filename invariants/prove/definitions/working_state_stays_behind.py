"""Planted in `_Pass._write`: the working state of a single step is not written."""

from __future__ import annotations

from typing import Any

from hicache.transformers import passes

from ...planted.base import Patch

TITLE = "The state after a single step is not kept for the next one."
FAMILIES: tuple[str, ...] = ("qwen3-next", "nemotron-h", "falcon-h1", "mamba2")

_write = passes._Pass._write


def _without(self: Any, at: int, cache: Any) -> None:
    first, end, _ = self._span
    slots = self._pages.slots
    if end == first + 1:
        self._pages.slots = None
    _write(self, at, cache)
    self._pages.slots = slots


def plant(patch: Patch) -> None:
    patch(passes._Pass, "_write", _without)
