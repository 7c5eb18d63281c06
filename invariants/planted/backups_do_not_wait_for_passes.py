"""Planted: see TITLE."""

from __future__ import annotations

from hicache.devices.base import Device, Direction, Front, Mark, Stream
from hicache.runtime.lanes import Lane

from .base import Patch

ROWS: tuple[str, ...] = ("C7",)
TITLE = "A backup does not wait for the passes before it, which may still write its source."
KILLS = ""
EXECUTOR = "device"

_issue = Lane.issue


class _Deaf(Front[Device]):
    """A device to which a wait means nothing."""

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Dropped."""


def _at_once(self: Lane, after: Mark) -> None:
    whole = self._device
    if self._direction is Direction.DEVICE_TO_HOST:
        self._device = _Deaf(whole)
    _issue(self, after)
    self._device = whole


def plant(patch: Patch) -> None:
    patch(Lane, "issue", _at_once)
