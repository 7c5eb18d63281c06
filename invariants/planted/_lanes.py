"""Shared code of bugs of the transfer controller: one direction issues its work to a changed
device.

Does not define a bug.
"""

from __future__ import annotations

from collections.abc import Callable

from hicache.devices.base import CopyJob, Device, Direction, Front, Mark, Stream
from hicache.runtime.lanes import Lane

_issue = Lane.issue


class Deaf(Front[Device]):
    """A device that ignores waits."""

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Does nothing."""


class Early(Front[Device]):
    """A device that records marks before the copies that they should follow."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self._held: list[tuple[Stream, CopyJob]] = []

    def copy(self, stream: Stream, job: CopyJob) -> None:
        self._held.append((stream, job))

    def record(self, stream: Stream) -> Mark:
        mark = self.inner.record(stream)
        for behind, job in self._held:
            self.inner.copy(behind, job)
        self._held.clear()
        return mark


def issued_through(
    front: Callable[[Device], Device], direction: Direction
) -> Callable[[Lane, Mark], None]:
    """Returns `Lane.issue` with a changed device for the lane of this direction."""

    def issue(self: Lane, after: Mark) -> None:
        whole = self._device
        if self._direction is direction:
            self._device = front(whole)
        _issue(self, after)
        self._device = whole

    return issue
