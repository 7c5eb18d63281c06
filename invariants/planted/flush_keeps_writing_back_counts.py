"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Pages that were being written back at a flush stay counted as writing back."
KILLS = "reset"
FAULTS = ("flush during the copy",)

_flush = core._flush


def _keep_counts(state: Any, event: Any) -> None:
    before = list(state.writing_back)
    _flush(state, event)
    state.writing_back[:] = before


def plant(patch: Patch) -> None:
    patch(core, "_flush", _keep_counts)
