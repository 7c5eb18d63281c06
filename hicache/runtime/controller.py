"""The transfer controller: the core's loads and backups, carried out on any device.

Lives here: two lanes, their order against the model's own work, and replies. Must not live here:
which pages move (the core), how (the device), or any wait that blocks.

Why both lanes start behind the compute stream: a backup reads pages that a forward pass wrote, and
a load writes pages whose previous owner a forward pass may still be reading or writing. The other
direction needs no wait: the core reuses a page of a transfer only after its reply, and by then the
host has seen its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.actions import Backup, Load
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.core.types import FlightId
from hicache.devices.base import Device, Direction, Mark

from .lanes import Lane

COMPUTE, WRITE, LOAD = "compute", "write", "load"


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """capacity: unanswered transfers per lane. backup_batches: batches of backups in flight."""

    capacity: int = 65_536
    backup_batches: int = 8

    def __post_init__(self) -> None:
        for name, value in (("capacity", self.capacity), ("backup_batches", self.backup_batches)):
            if value < 1:
                raise CallerError(f"{name}: expected at least 1, found {value}")


class TransferController:
    """An `Executor` on a `Device`. Loads are never held back: a forward pass waits for them."""

    def __init__(self, device: Device, options: ControllerOptions | None = None) -> None:
        options = options or ControllerOptions()
        self._device = device
        self._compute = device.stream(COMPUTE)
        layers = device.layers
        self._backups = Lane(
            device,
            Direction.DEVICE_TO_HOST,
            WRITE,
            ((0, layers),),
            options.capacity,
            options.backup_batches,
        )
        self._loads = Lane(
            device,
            Direction.HOST_TO_DEVICE,
            LOAD,
            tuple((layer, layer + 1) for layer in range(layers)),
            options.capacity,
            options.capacity,
        )

    @property
    def unanswered(self) -> int:
        """Transfers submitted whose reply was not taken yet."""
        return len(self._backups) + len(self._loads)

    def is_unanswered(self, flight: FlightId) -> bool:
        """Whether the transfer was submitted and its reply was not taken yet."""
        return flight in self._backups or flight in self._loads

    def submit(self, action: Load | Backup) -> None:
        (self._loads if type(action) is Load else self._backups).submit(action)

    def start(self) -> None:
        if self._backups.queued or self._loads.queued:
            after = self._device.record(self._compute)
            for lane in (self._backups, self._loads):
                if lane.queued:
                    lane.issue(after)

    def poll(self) -> list[Reply]:
        """Backups first: they set pages free that loads have no part in."""
        replies: list[Reply] = [BackupDone(*ended) for ended in self._backups.ended()]
        replies += [LoadDone(*ended) for ended in self._loads.ended()]
        return replies

    def load_marks(self, flight: FlightId) -> tuple[Mark, ...]:
        """A mark per layer of a load that was started; none once its reply was taken."""
        return self._loads.marks(flight)

    def load_failed(self, flight: FlightId) -> bool:
        """Whether a load already behind the caller failed; False once its reply was taken."""
        return any(self._device.failed(mark) for mark in self._loads.marks(flight))
