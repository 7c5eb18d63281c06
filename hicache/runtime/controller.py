"""The transfer controller carries out the core's loads and backups on any device.

It has two transfer queues, one per direction, orders them against the model's own work, and makes
the replies. It never blocks. A transfer queue merges queued transfers into batches, issues a batch
to the device, and polls for the end of the batches in order. A batch has one copy per component and
layer group, over the pages of all its transfers. The groups are issued in ascending order with an
event after each, so that a forward pass can wait for the layer that it needs.

Both transfer queues wait for the compute stream, because a backup reads pages that a forward pass
wrote, and a load writes pages that a forward pass of their previous owner may still use. The
compute stream need not wait before a page of a transfer is reused: the core reuses it only after
the reply, or that of the pass that read what was loaded, and then the transfer has ended.

Each stage of a pipeline has a compute stream and transfer queues of its own, which copy its layers.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Backup, Copy, HostTransfer, Load, StorageAction
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.core.types import Pages, TransferId
from hicache.devices.base import CopyJob, Device, DeviceEvent, Direction, Stream

from .driver import without_storage

COMPUTE, WRITE, LOAD = "compute", "write", "load"


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """capacity: the most unanswered transfers per transfer queue; one more is a CallerError.
    backup_batches: the most batches of backups in flight; what is queued meanwhile is merged into a
    later batch. Raises CallerError for values below 1."""

    capacity: int = 65_536
    backup_batches: int = 8

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.backup_batches < 1:
            raise CallerError(f"expected options of at least 1, found {self}")


class Batch(NamedTuple):
    """Transfers that were issued together, one event per layer group, and the last of each
    stage."""

    transfers: tuple[TransferId, ...]
    device_events: tuple[DeviceEvent, ...]
    ends: tuple[DeviceEvent, ...]


class Ended(NamedTuple):
    transfer: TransferId
    ok: bool


class TransferQueue:
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
        self._queued: deque[HostTransfer] = deque()
        self._batches: deque[Batch] = deque()
        self._device_events: dict[TransferId, tuple[DeviceEvent, ...]] = {}

    def __len__(self) -> int:
        """Number of transfers queued or in flight."""
        return len(self._queued) + len(self._device_events)

    def __contains__(self, transfer: TransferId) -> bool:
        """Whether the transfer is queued or in flight."""
        return transfer in self._device_events or any(
            item.transfer == transfer for item in self._queued
        )

    @property
    def queued(self) -> bool:
        """Whether `issue` has something to do."""
        return bool(self._queued) and len(self._batches) < self._depth

    def device_events(self, transfer: TransferId) -> tuple[DeviceEvent, ...]:
        """One event per layer group of a transfer in flight. Empty after `ended` has returned
        it."""
        return self._device_events.get(transfer, ())

    def submit(self, action: HostTransfer) -> None:
        if len(self) >= self._capacity:
            raise CallerError(
                f"{self._name}: {self._capacity} transfers are unanswered; poll for replies first"
            )
        self._queued.append(action)

    def issue(self, after: Sequence[DeviceEvent]) -> None:
        """Issue everything that is queued as one batch, which starts after an event of each
        stage."""
        actions = tuple(self._queued)
        self._queued.clear()
        device = self._device
        merged = _merged(actions)
        transfers = tuple(action.transfer for action in actions)
        why = f"{self._name} of transfers {transfers[0]}..{transfers[-1]}"
        device_events, ends = [], []
        for (stream, groups), device_event in zip(self._stages, after, strict=True):
            device.wait(stream, device_event)
            for group in groups:
                for component, (source, target) in merged.items():
                    job = CopyJob(self._direction, component, source, target, group, why)
                    device.copy(stream, job)
                device_events.append(device.record(stream))
            ends.append(device_events[-1])
        batch = Batch(transfers, tuple(device_events), tuple(ends))
        self._batches.append(batch)
        for transfer in transfers:
            self._device_events[transfer] = batch.device_events

    def ended(self) -> list[Ended]:
        """Transfers that ended since the last call, in order of submission."""
        ended: list[Ended] = []
        device = self._device
        while self._batches and all(
            device.query(device_event) for device_event in self._batches[0].ends
        ):
            batch = self._batches.popleft()
            ok = not any(device.failed(device_event) for device_event in batch.device_events)
            for transfer in batch.transfers:
                del self._device_events[transfer]
                ended.append(Ended(transfer, ok))
        return ended


def _merged(actions: tuple[HostTransfer, ...]) -> dict[str, tuple[Pages, Pages]]:
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
        self._backups = TransferQueue(
            device,
            Direction.DEVICE_TO_HOST,
            [(of_stage(WRITE, at), (span,)) for at, span in spans],
            options.capacity,
            options.backup_batches,
        )
        self._loads = TransferQueue(
            device,
            Direction.HOST_TO_DEVICE,
            [
                (of_stage(LOAD, at), [(index, index + 1) for index in range(*span)])
                for at, span in spans
            ],
            options.capacity,
            options.capacity,
        )

    @property
    def unanswered(self) -> int:
        """Number of submitted transfers whose reply was not taken yet."""
        return len(self._backups) + len(self._loads)

    def is_unanswered(self, transfer: TransferId) -> bool:
        """Whether the transfer was submitted and its reply was not taken yet."""
        return transfer in self._backups or transfer in self._loads

    def submit(self, action: HostTransfer | StorageAction) -> None:
        if type(action) is Load:
            self._loads.submit(action)
        elif type(action) is Backup:
            self._backups.submit(action)
        else:
            raise without_storage(action, self)

    def abandon(self, transfer: TransferId) -> None:
        """Does nothing: nobody abandons a load or backup."""

    def start(self) -> None:
        if self._backups.queued or self._loads.queued:
            after = [self._device.record(stream) for stream in self._compute]
            for transfer_queue in (self._backups, self._loads):
                if transfer_queue.queued:
                    transfer_queue.issue(after)

    def poll(self) -> list[Reply]:
        """Replies of transfers that have ended, backups first."""
        return [*self.poll_backups(), *(LoadDone(*ended) for ended in self._loads.ended())]

    def poll_backups(self) -> list[Reply]:
        """Replies of the backups alone that have ended."""
        return [BackupDone(*ended) for ended in self._backups.ended()]

    def load_events(self, transfer: TransferId) -> tuple[DeviceEvent, ...]:
        """One event per layer of a load that was started. Empty after its reply was taken."""
        return self._loads.device_events(transfer)

    def load_failed(self, transfer: TransferId) -> bool:
        """Whether a load that has ended failed. False after its reply was taken."""
        return any(
            self._device.failed(device_event)
            for device_event in self._loads.device_events(transfer)
        )
