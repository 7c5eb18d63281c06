"""Planted: see TITLE."""

from __future__ import annotations

from collections.abc import Sequence

from hicache.runtime.agreement import Agreement
from hicache.runtime.group import Turn, Values

from .base import Patch

ROWS: tuple[str, ...] = ("D3",)
TITLE = "Rank 0 alone decides whether a transfer succeeded, although others may lack its bytes."
KILLS = ""
RANKS = 2


def _of_the_first(self: Agreement, flights: Sequence[int]) -> Turn[Values]:
    own = [int(self._ended[flight]) for flight in flights]
    return (yield from self.group.broadcast("verdicts of replies", own))


def plant(patch: Patch) -> None:
    patch(Agreement, "_verdicts", _of_the_first)
