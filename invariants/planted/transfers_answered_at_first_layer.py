"""Planted: see TITLE."""

from __future__ import annotations

from hicache.runtime.lanes import Ended, Lane

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A transfer is answered when its first layer is there."
KILLS = ""
EXECUTOR = "device"


def _ended(self: Lane) -> list[Ended]:
    ended: list[Ended] = []
    device = self._device
    while self._batches and device.query(self._batches[0].marks[0]):
        batch = self._batches.popleft()
        ok = not any(device.failed(mark) for mark in batch.marks if device.query(mark))
        for flight in batch.flights:
            del self._marks[flight]
            ended.append(Ended(flight, ok))
    return ended


def plant(patch: Patch) -> None:
    patch(Lane, "ended", _ended)
