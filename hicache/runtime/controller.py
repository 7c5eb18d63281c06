"""The transfer controller carries out the core's loads and backups on any device.

It has two lanes, one per direction, orders them against the model's own work, and makes the
replies. It never blocks. A lane merges queued transfers into batches, issues a batch to the device,
and polls for the end of the batches in order. A batch has one copy per component and layer group,
over the pages of all its transfers. The groups are issued in ascending order with a mark after
each, so that a forward pass can wait for the layer that it needs.

Both lanes wait for the compute stream, because a backup reads pages that a forward pass wrote, and
a load writes pages that a forward pass of their previous owner may still use. The compute stream
need not wait before a page of a transfer is reused: the core reuses it only after the reply, and
then the host has seen the end of the transfer.

Each stage of a pipeline has a compute stream and lanes of its own, which copy its layers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Backup, Copy, Load, StorageAction, Transfer
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.core.types import FlightId, Pages
from hicache.devices.base import CopyJob, Device, Direction, Mark, Stream

from .driver import without_storage

COMPUTE, WRITE, LOAD = "compute", "write", "load"


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """capacity: the most unanswered transfers per lane; one more is a CallerError. backup_batches:
    the most batches of backups in flight; what is queued meanwhile is merged into a later batch.
    Raises CallerError for values below 1."""

    capacity: int = 65_536
    backup_batches: int = 8

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.backup_batches < 1:
            raise CallerError(f"expected options of at least 1, found {self}")


class Batch(NamedTuple):
    """Transfers that were issued together, one mark per layer group, and the last of each stage."""

    flights: tuple[FlightId, ...]
    marks: tuple[Mark, ...]
    ends: tuple[Mark, ...]


class Ended(NamedTuple):
    flight: FlightId
    ok: bool


class Lane:
    """One direction. stages: of each, its stream and its layer groups, each [first, last). depth:
    the most batches in flight at once."""

    def __init__(
        self,
        device: Device,
        direction: Direction,
        stages: Sequence[tuple[str, Sequence[tuple[int, int]]]],
        capacity: int,
        depth: int,
    ) -> None:
        self._device = device
        self._direction = direction
        self._name = stages[0][0]
        self._stages = [(device.stream(stream), groups) for stream, groups in stages]
        self._capacity = capacity
        self._depth = depth
        self._queued: deque[Transfer] = deque()
        self._batches: deque[Batch] = deque()
        self._marks: dict[FlightId, tuple[Mark, ...]] = {}

    def __len__(self) -> int:
        """Number of transfers queued or in flight."""
        return len(self._queued) + len(self._marks)

    def __contains__(self, flight: FlightId) -> bool:
        """Whether the transfer is queued or in flight."""
        return flight in self._marks or any(one.flight == flight for one in self._queued)

    @property
    def queued(self) -> bool:
        """Whether `issue` has something to do."""
        return bool(self._queued) and len(self._batches) < self._depth

    def marks(self, flight: FlightId) -> tuple[Mark, ...]:
        """One mark per layer group of a transfer in flight. Empty after `ended` has returned it."""
        return self._marks.get(flight, ())

    def submit(self, action: Transfer) -> None:
        if len(self) >= self._capacity:
            raise CallerError(
                f"{self._name}: {self._capacity} transfers are unanswered; poll for replies first"
            )
        self._queued.append(action)

    def issue(self, after: Sequence[Mark]) -> None:
        """Issue everything that is queued as one batch, which starts after a mark of each stage."""
        actions = tuple(self._queued)
        self._queued.clear()
        device = self._device
        merged = _merged(actions)
        flights = tuple(action.flight for action in actions)
        why = f"{self._name} of flights {flights[0]}..{flights[-1]}"
        marks, ends = [], []
        for (stream, groups), mark in zip(self._stages, after, strict=True):
            device.wait(stream, mark)
            for group in groups:
                for component, (source, target) in merged.items():
                    job = CopyJob(self._direction, component, source, target, group, why)
                    device.copy(stream, job)
                marks.append(device.record(stream))
            ends.append(marks[-1])
        batch = Batch(flights, tuple(marks), tuple(ends))
        self._batches.append(batch)
        for flight in flights:
            self._marks[flight] = batch.marks

    def ended(self) -> list[Ended]:
        """Transfers that ended since the last call, in order of submission."""
        ended: list[Ended] = []
        device = self._device
        while self._batches and all(device.query(mark) for mark in self._batches[0].ends):
            batch = self._batches.popleft()
            ok = not any(device.failed(mark) for mark in batch.marks)
            for flight in batch.flights:
                del self._marks[flight]
                ended.append(Ended(flight, ok))
        return ended


def _merged(actions: tuple[Transfer, ...]) -> dict[str, tuple[Pages, Pages]]:
    """Source and target pages of all actions, by component in order of first appearance."""
    copies: dict[str, list[Copy]] = {}
    for action in actions:
        for copy in action.copies:
            copies.setdefault(copy.component, []).append(copy)
    return {
        component: (
            np.concatenate([copy.source for copy in parts]),
            np.concatenate([copy.target for copy in parts]),
        )
        for component, parts in copies.items()
    }


def of_stage(stream: str, stage: int) -> str:
    """The name of a stage's stream."""
    return f"{stream} {stage}" if stage else stream


class TransferController:
    """An `Executor` on a `Device`. Loads are issued at once, because a forward pass waits for
    them. stages: the layers [first, last) of each stage of a pipeline; without it, one has all."""

    def __init__(
        self,
        device: Device,
        options: ControllerOptions | None = None,
        stages: Sequence[tuple[int, int]] = (),
    ) -> None:
        options = options or ControllerOptions()
        self._device = device
        spans = list(enumerate(stages or [(0, device.layers)]))
        self._compute: list[Stream] = [device.stream(of_stage(COMPUTE, at)) for at, _ in spans]
        self._backups = Lane(
            device,
            Direction.DEVICE_TO_HOST,
            [(of_stage(WRITE, at), (span,)) for at, span in spans],
            options.capacity,
            options.backup_batches,
        )
        self._loads = Lane(
            device,
            Direction.HOST_TO_DEVICE,
            [(of_stage(LOAD, at), [(one, one + 1) for one in range(*span)]) for at, span in spans],
            options.capacity,
            options.capacity,
        )

    @property
    def unanswered(self) -> int:
        """Number of submitted transfers whose reply was not taken yet."""
        return len(self._backups) + len(self._loads)

    def is_unanswered(self, flight: FlightId) -> bool:
        """Whether the transfer was submitted and its reply was not taken yet."""
        return flight in self._backups or flight in self._loads

    def submit(self, action: Transfer | StorageAction) -> None:
        if type(action) is Load:
            self._loads.submit(action)
        elif type(action) is Backup:
            self._backups.submit(action)
        else:
            raise without_storage(action, self)

    def abandon(self, flight: FlightId) -> None:
        """Does nothing: nobody abandons a load or backup."""

    def start(self) -> None:
        if self._backups.queued or self._loads.queued:
            after = [self._device.record(stream) for stream in self._compute]
            for lane in (self._backups, self._loads):
                if lane.queued:
                    lane.issue(after)

    def poll(self) -> list[Reply]:
        """Replies of transfers that have ended, backups first."""
        return [*self.poll_backups(), *(LoadDone(*ended) for ended in self._loads.ended())]

    def poll_backups(self) -> list[Reply]:
        """Replies of the backups alone that have ended."""
        return [BackupDone(*ended) for ended in self._backups.ended()]

    def load_marks(self, flight: FlightId) -> tuple[Mark, ...]:
        """One mark per layer of a load that was started. Empty after its reply was taken."""
        return self._loads.marks(flight)

    def load_failed(self, flight: FlightId) -> bool:
        """Whether a load that has ended failed. False after its reply was taken."""
        return any(self._device.failed(mark) for mark in self._loads.marks(flight))
