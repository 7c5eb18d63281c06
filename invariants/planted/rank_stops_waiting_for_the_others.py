"""Planted: see TITLE."""

from __future__ import annotations

from hicache.runtime.agreement import Agreement
from hicache.runtime.group import Turn

from .base import Patch

ROWS: tuple[str, ...] = ("D10",)
TITLE = "A rank applies its own reply after eight polls, although other ranks lack it."
KILLS = ""
RANKS = 2

_counts = Agreement._counts


def _patience(self: Agreement) -> Turn[list[int]]:
    counts = yield from _counts(self)
    waited: dict[int, int] = vars(self).setdefault("waited", {})
    for at, (own, all_have, lane) in enumerate(
        zip(self.leading(), counts, self._lanes.values(), strict=True)
    ):
        if own and not all_have:
            waited[lane[0]] = waited.get(lane[0], 0) + 1
            if waited[lane[0]] == 8:
                counts[at] = 1
    return counts


def plant(patch: Patch) -> None:
    patch(Agreement, "_counts", _patience)
