"""Planted in `marks.came`: see TITLE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy that the ghost knows comes into the small queue, like one that is new."
KILLS = "second-chance"
EVICTION = "s3_fifo"
COMPONENTS = ("full",)


_came = marks.came


def _forgotten(state: Any, node: Any, index: int, pages: int, digests: Sequence[bytes]) -> None:
    known, state.chances[index].ghost = state.chances[index].ghost, {}
    _came(state, node, index, pages, digests)
    state.chances[index].ghost = known


def plant(patch: Patch) -> None:
    patch(marks, "came", _forgotten)
