"""Bugs in the transfer controller and its lanes: copies, marks, batches and acks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hicache.core.types import FlightId
from hicache.devices.base import CopyJob, Device, Direction, Front, Mark, Stream
from hicache.runtime import lanes
from hicache.runtime.controller import TransferController
from hicache.runtime.lanes import Ended, Lane

from .base import Patch, bug

_issue = Lane.issue
_load_marks = TransferController.load_marks
_merged = lanes._merged


class _Deaf(Front[Device]):
    """A device that ignores waits."""

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Does nothing."""


class _Early(Front[Device]):
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


def _issued_through(
    front: Callable[[Device], Device], direction: Direction
) -> Callable[[Lane, Sequence[Mark]], None]:
    """Returns `Lane.issue` with a changed device for the lane of this direction."""

    def issue(self: Lane, after: Sequence[Mark]) -> None:
        whole = self._device
        if self._direction is direction:
            self._device = front(whole)
        _issue(self, after)
        self._device = whole

    return issue


@bug(rows=("C7",), executor="device")
def backup_mark_precedes_its_copies(patch: Patch) -> None:
    """The mark that answers a backup is recorded before its copies are issued."""
    patch(Lane, "issue", _issued_through(_Early, Direction.DEVICE_TO_HOST))


@bug(rows=("C7",), executor="device")
def backups_do_not_wait_for_passes(patch: Patch) -> None:
    """A backup does not wait for the passes before it, which may still write its source."""
    patch(Lane, "issue", _issued_through(_Deaf, Direction.DEVICE_TO_HOST))


class _Short(Front[Device]):
    """A device that omits the last of several layers."""

    def copy(self, stream: Stream, job: CopyJob) -> None:
        first, last = job.layers
        if first == 0 or last < self.layers:
            self.inner.copy(stream, job)


@bug(Lane, "issue", executor="device")
def last_layer_is_not_loaded(self: Lane, after: Sequence[Mark]) -> None:
    """A load of several layers leaves out the last one."""
    whole = self._device
    if self._direction is Direction.HOST_TO_DEVICE:
        self._device = _Short(whole)
    _issue(self, after)
    self._device = whole


@bug(rows=("C4",), executor="device")
def layer_marks_precede_their_copies(patch: Patch) -> None:
    """The mark of each layer of a load is recorded before its copies are issued."""
    patch(Lane, "issue", _issued_through(_Early, Direction.HOST_TO_DEVICE))


@bug(rows=("C5",), executor="device")
def loads_do_not_wait_for_passes(patch: Patch) -> None:
    """A load does not wait for the passes before it, which may still use its targets."""
    patch(Lane, "issue", _issued_through(_Deaf, Direction.HOST_TO_DEVICE))


@bug(Lane, "ended", executor="device")
def only_last_layer_failure_is_reported(self: Lane) -> list[Ended]:
    """A transfer is reported as failed only if its last layer failed."""
    ended: list[Ended] = []
    device = self._device
    while self._batches and device.query(self._batches[0].marks[-1]):
        batch = self._batches.popleft()
        ok = not device.failed(batch.marks[-1])
        for flight in batch.flights:
            del self._marks[flight]
            ended.append(Ended(flight, ok))
    return ended


@bug(Lane, "ended", executor="device")
def transfers_answered_at_first_layer(self: Lane) -> list[Ended]:
    """A transfer is answered when its first layer is there."""
    ended: list[Ended] = []
    device = self._device
    while self._batches and device.query(self._batches[0].marks[0]):
        batch = self._batches.popleft()
        ok = not any(device.failed(mark) for mark in batch.marks if device.query(mark))
        for flight in batch.flights:
            del self._marks[flight]
            ended.append(Ended(flight, ok))
    return ended


@bug(Lane, "ended", executor="device")
def youngest_batch_is_answered_first(self: Lane) -> list[Ended]:
    """When the oldest batch of a direction ends, the youngest is answered."""
    ended: list[Ended] = []
    device = self._device
    while self._batches and device.query(self._batches[0].marks[-1]):
        batch = self._batches.pop()
        ok = not any(device.failed(mark) for mark in batch.marks if device.query(mark))
        for flight in batch.flights:
            del self._marks[flight]
            ended.append(Ended(flight, ok))
    return ended


@bug(lanes, "_merged", rows=("C11",), executor="device")
def batched_copies_mix_up_targets(actions: tuple[Any, ...]) -> dict[str, Any]:
    """In a batch of several copies, the targets are in another order than the sources."""
    found = _merged(actions)
    for name in found:
        parts = [copy for one in actions for copy in one.copies if copy.component == name]
        targets = np.concatenate([copy.target for copy in reversed(parts)])
        found[name] = (found[name][0], targets)
    return found


@bug(lanes, "_merged", executor="device")
def batching_keeps_only_the_last_copy(actions: tuple[Any, ...]) -> dict[str, Any]:
    """Of several copies of one component in a batch, only the last is carried out."""
    return {copy.component: (copy.source, copy.target) for one in actions for copy in one.copies}


@bug(lanes, "_merged", executor="device")
def copy_writes_one_page_too_many(actions: tuple[Any, ...]) -> dict[str, Any]:
    """A copy also writes the page after its last one."""
    found = _merged(actions)
    for name, (source, target) in found.items():
        below = int(target[-1]) - 1
        if below >= 0 and below not in target:
            found[name] = (np.append(source, source[-1]), np.append(target, below))
    return found


@bug(TransferController, "load_marks", rows=("C4",), executor="device")
def passes_wait_for_the_first_layer_only(
    self: TransferController, flight: FlightId
) -> tuple[Mark, ...]:
    """Every layer of a pass waits for the first layer of its load."""
    marks = _load_marks(self, flight)
    return marks[:1] * len(marks)


@bug(TransferController, "load_failed", rows=("C16",), executor="device")
def pass_succeeds_after_failed_load(self: TransferController, flight: FlightId) -> bool:
    """A pass succeeds although the load that it reads has failed."""
    return False
