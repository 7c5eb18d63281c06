"""Executors that carry out nothing by themselves: one that ends everything at once, and one that
passes actions to two others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from hicache.core.actions import Backup, Copy, Load, StorageAction, Transfer
from hicache.core.events import Reply, StorageReply
from hicache.core.types import FlightId
from hicache.devices.base import Direction

from .driver import REPLY_TO, Executor, without_storage

Mover: TypeAlias = Callable[[Direction, Copy], None]
_WAYS = {Load: Direction.HOST_TO_DEVICE, Backup: Direction.DEVICE_TO_HOST}


class ImmediateExecutor:
    """Without a device or a clock: every transfer ends as soon as it is started. It is for replays
    that count hits and for measuring the core alone. It does not model time, and has no storage.

    mover: called for each copy, in order, to move bytes or a record of them. None: nothing is
    moved."""

    __slots__ = ("_ended", "_mover", "_queued")

    def __init__(self, mover: Mover | None = None) -> None:
        self._mover = mover
        self._queued: deque[Transfer] = deque()
        self._ended: deque[Transfer] = deque()

    def submit(self, action: Transfer | StorageAction) -> None:
        """Raises CallerError for an action for storage."""
        if type(action) is not Load and type(action) is not Backup:
            raise without_storage(action, self)
        self._queued.append(action)

    def abandon(self, flight: FlightId) -> None:
        """Does nothing: nobody abandons a load or backup."""

    def start(self) -> None:
        if self._mover is not None:
            for action in self._queued:
                for copy in action.copies:
                    self._mover(_WAYS[type(action)], copy)
        self._ended += self._queued
        self._queued.clear()

    def poll(self) -> list[Reply]:
        if not self._ended:
            return []
        replies: list[Reply] = [REPLY_TO[type(action)](action.flight, 1) for action in self._ended]
        self._ended.clear()
        return replies


class StorageTier(Protocol):
    """Carries out actions for storage, as `Executor` says."""

    def submit(self, action: StorageAction) -> None: ...

    def abandon(self, flight: FlightId) -> None: ...

    def start(self) -> None: ...

    def poll(self) -> list[StorageReply]: ...


class TieredExecutor:
    """For three tiers: passes loads and backups to `transfers`, and actions for storage to
    `storage`."""

    def __init__(self, transfers: Executor, storage: StorageTier) -> None:
        self.transfers = transfers
        self.storage = storage

    def submit(self, action: Transfer | StorageAction) -> None:
        if isinstance(action, Load | Backup):
            self.transfers.submit(action)
        else:
            self.storage.submit(action)

    def abandon(self, flight: FlightId) -> None:
        self.storage.abandon(flight)

    def start(self) -> None:
        self.transfers.start()
        self.storage.start()

    def poll(self) -> list[Reply]:
        return [*self.transfers.poll(), *self.storage.poll()]
