"""Planted: see TITLE."""

from __future__ import annotations

from hicache.runtime.agreement import Agreement
from hicache.runtime.group import Turn

from .base import Patch

ROWS: tuple[str, ...] = ("D10",)
TITLE = "A rank applies a reply as soon as it has it, before the other ranks have it."
KILLS = ""
RANKS = 2


def _own(self: Agreement) -> Turn[list[int]]:
    yield from self.group.minimum("replies that ended", self.leading())
    return self.leading()


def plant(patch: Patch) -> None:
    patch(Agreement, "_counts", _own)
