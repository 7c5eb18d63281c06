"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.devices.base import Device, Direction, Front, Mark
from hicache.runtime.lanes import Lane

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Of a load of several layers, the last is left out."
KILLS = ""
EXECUTOR = "device"

_issue = Lane.issue


class _Short(Front[Device]):
    """A device that copies all layers but the last of several."""

    def copy(self, stream: Any, *args: Any) -> None:
        first, last = args[-2]
        if first == 0 or last < self.layers:
            self.inner.copy(stream, *args)


def _shortened(self: Lane, after: Mark) -> None:
    whole = self._device
    if self._direction is Direction.HOST_TO_DEVICE:
        self._device = _Short(whole)
    _issue(self, after)
    self._device = whole


def plant(patch: Patch) -> None:
    patch(Lane, "issue", _shortened)
