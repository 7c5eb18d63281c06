"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.devices.base import Device, Direction, Front, Mark, Stream
from hicache.runtime.lanes import Lane

from .base import Patch

ROWS: tuple[str, ...] = ("C7",)
TITLE = "The mark that answers a backup is recorded before its copies are issued."
KILLS = ""
EXECUTOR = "device"

_issue = Lane.issue


class _Early(Front[Device]):
    """A device whose marks are recorded before the copies that they are to stand behind."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self._held: list[tuple[Any, ...]] = []

    def copy(self, *args: Any) -> None:
        self._held.append(args)

    def record(self, stream: Stream) -> Mark:
        mark = self.inner.record(stream)
        for args in self._held:
            self.inner.copy(*args)
        self._held.clear()
        return mark


def _marked_early(self: Lane, after: Mark) -> None:
    whole = self._device
    if self._direction is Direction.DEVICE_TO_HOST:
        self._device = _Early(whole)
    _issue(self, after)
    self._device = whole


def plant(patch: Patch) -> None:
    patch(Lane, "issue", _marked_early)
