"""Planted: see TITLE."""

from __future__ import annotations

from hicache.runtime.lanes import Ended, Lane

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "When the oldest batch of a direction ends, the youngest is answered."
KILLS = ""
EXECUTOR = "device"


def _ended(self: Lane) -> list[Ended]:
    ended: list[Ended] = []
    device = self._device
    while self._batches and device.query(self._batches[0].marks[-1]):
        batch = self._batches.pop()
        ok = not any(device.failed(mark) for mark in batch.marks if device.query(mark))
        for flight in batch.flights:
            del self._marks[flight]
            ended.append(Ended(flight, ok))
    return ended


def plant(patch: Patch) -> None:
    patch(Lane, "ended", _ended)
