"""Planted: see TITLE."""

from __future__ import annotations

from hicache.runtime.agreement import Agreement
from hicache.runtime.group import Turn

from .base import Patch

ROWS: tuple[str, ...] = ("D6",)
TITLE = "A rank enters one collective per reply of its own, and ranks differ in their number."
KILLS = ""
RANKS = 2


def _one_by_one(self: Agreement) -> Turn[list[int]]:
    counts = []
    for own in self.leading():
        everywhere = 0
        for _ in range(own):
            everywhere += (yield from self.group.minimum("a reply that ended", [1]))[0]
        counts.append(everywhere)
    return counts


def plant(patch: Patch) -> None:
    patch(Agreement, "_counts", _one_by_one)
