"""Planted: see TITLE."""

from __future__ import annotations

from collections.abc import Sequence

from hicache.runtime.agreement import Agreement
from hicache.runtime.group import Turn, Values

from .base import Patch

ROWS: tuple[str, ...] = ("D3",)
TITLE = "Ranks agree that a transfer has ended, but not on whether it succeeded."
KILLS = ""
RANKS = 2


def _own(self: Agreement, flights: Sequence[int]) -> Turn[Values]:
    yield from ()
    return tuple(int(self._ended[flight]) for flight in flights)


def plant(patch: Patch) -> None:
    patch(Agreement, "_verdicts", _own)
