"""An executor for three tiers: one part moves pages between device and host, the other one between
host and storage.

Does not carry out any action itself.
"""

from __future__ import annotations

from typing import Protocol

from hicache.core.actions import Backup, Load, StorageAction, Transfer
from hicache.core.events import Reply, StorageReply
from hicache.core.types import FlightId

from .driver import Executor


class StorageTier(Protocol):
    """Carries out actions for storage, as `Executor` says."""

    def submit(self, action: StorageAction) -> None: ...

    def abandon(self, flight: FlightId) -> None: ...

    def start(self) -> None: ...

    def poll(self) -> list[StorageReply]: ...


class TieredExecutor:
    """Passes loads and backups to `transfers`, and actions for storage to `storage`."""

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
