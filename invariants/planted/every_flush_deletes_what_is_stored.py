"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Every flush deletes what storage has."
KILLS = "answers"

_flush = core._flush


def _everything(state: Any, event: Any) -> None:
    _flush(state, event._replace(storage=True))


def plant(patch: Patch) -> None:
    patch(core, "_flush", _everything)
