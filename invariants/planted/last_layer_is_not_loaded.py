"""Planted: see TITLE."""

from __future__ import annotations

from hicache.devices.base import CopyJob, Device, Direction, Front, Mark, Stream
from hicache.runtime.lanes import Lane

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A load of several layers leaves out the last one."
KILLS = ""
EXECUTOR = "device"

_issue = Lane.issue


class _Short(Front[Device]):
    """A device that omits the last of several layers."""

    def copy(self, stream: Stream, job: CopyJob) -> None:
        first, last = job.layers
        if first == 0 or last < self.layers:
            self.inner.copy(stream, job)


def _shortened(self: Lane, after: Mark) -> None:
    whole = self._device
    if self._direction is Direction.HOST_TO_DEVICE:
        self._device = _Short(whole)
    _issue(self, after)
    self._device = whole


def plant(patch: Patch) -> None:
    patch(Lane, "issue", _shortened)
