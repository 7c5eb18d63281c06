"""The transfer controller: it carries out the core's loads and backups on any device.

It has two lanes, orders them against the model's own work, and makes the replies. It does not
choose pages, which the core does, or copy bytes, which the device does. It never blocks.

Both lanes wait for the compute stream, because a backup reads pages that a forward pass wrote, and
a load writes pages that a forward pass of their previous owner may still use. The compute stream
need not wait before a page of a transfer is reused: the core reuses it only after the reply, and
then the host has seen the end of the transfer.

Each stage of a pipeline has a compute stream and lanes of its own, which copy its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache.core.actions import Backup, Load, StorageAction, Transfer
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.core.types import FlightId
from hicache.devices.base import Device, Direction, Mark

from .driver import without_storage
from .lanes import Lane, LanePart

COMPUTE, WRITE, LOAD = "compute", "write", "load"


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """capacity: the most unanswered transfers per lane. backup_batches: the most batches of backups
    in flight. Raises CallerError for values below 1."""

    capacity: int = 65_536
    backup_batches: int = 8

    def __post_init__(self) -> None:
        for name, value in (("capacity", self.capacity), ("backup_batches", self.backup_batches)):
            if value < 1:
                raise CallerError(f"{name}: expected at least 1, found {value}")


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
        self._compute = [device.stream(of_stage(COMPUTE, stage)) for stage, _ in spans]
        self._backups = Lane(
            device,
            Direction.DEVICE_TO_HOST,
            [LanePart(of_stage(WRITE, stage), (span,)) for stage, span in spans],
            options.capacity,
            options.backup_batches,
        )
        self._loads = Lane(
            device,
            Direction.HOST_TO_DEVICE,
            [
                LanePart(of_stage(LOAD, stage), tuple((one, one + 1) for one in range(*span)))
                for stage, span in spans
            ],
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
        """Raises CallerError for an action for storage."""
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
