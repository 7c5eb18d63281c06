"""An executor of transfers and one of storage, as the one executor that a driver has."""

from __future__ import annotations

from hicache.core.actions import Action, Backup, Load
from hicache.core.events import Reply
from hicache.core.types import FlightId
from hicache.runtime.driver import Executor

from .executor import StoreExecutor


class WithStorage:
    """An `Executor`. `poll` returns the replies of transfers first."""

    def __init__(self, transfers: Executor, store: StoreExecutor) -> None:
        self._transfers = transfers
        self._store = store

    def submit(self, action: Action) -> None:
        if type(action) is Load or type(action) is Backup:
            self._transfers.submit(action)
        else:
            self._store.submit(action)  # type: ignore[arg-type]

    def start(self) -> None:
        self._transfers.start()

    def abandon(self, flight: FlightId) -> None:
        self._store.abandon(flight)

    def poll(self) -> list[Reply]:
        return [*self._transfers.poll(), *self._store.poll()]

    def is_unanswered(self, flight: FlightId) -> bool:
        return self._store.is_unanswered(flight)
