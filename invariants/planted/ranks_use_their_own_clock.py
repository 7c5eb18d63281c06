"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.runtime.driver import Driver

from .base import Patch

ROWS: tuple[str, ...] = ("D7",)
TITLE = "Ranks other than the first sometimes give two uses the same time."
KILLS = ""
RANKS = 2

_feed = Driver.feed


def _coarse(self: Driver, event: Event) -> list[Outcome]:
    state: Any = self.core._state
    rank = getattr(getattr(self.executor, "group", None), "rank", 0)
    before = state.tick
    outcomes = _feed(self, event)
    if rank and before % 3 == 0:
        state.tick = before
    return outcomes


def plant(patch: Patch) -> None:
    patch(Driver, "feed", _coarse)
