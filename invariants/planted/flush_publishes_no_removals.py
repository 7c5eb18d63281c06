"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core
from hicache.core.actions import KvRemoved

from .base import Patch

ROWS: tuple[str, ...] = ("L1",)
TITLE = "A flush removes everything and publishes no removal event."
KILLS = "event-mirror"
FAULTS = ("flush during the copy",)

_flush = core._flush


def _flush_in_silence(state: Any, event: Any) -> None:
    _flush(state, event)
    state.out[:] = [item for item in state.out if type(item) is not KvRemoved]


def plant(patch: Patch) -> None:
    patch(core, "_flush", _flush_in_silence)
