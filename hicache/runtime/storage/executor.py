"""The executor of lookups, fetches, stores and deletes: it outlives the stores that it uses.

A store may be attached and detached while requests run. Without one, every action is answered at
once: nothing is found, and nothing is stored. Does not open or close stores, see `attachment`, or
carry out actions, see `workers`.
"""

from __future__ import annotations

from hicache.core.actions import Delete, Fetch, Lookup, StorageAction, Store
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.core.types import FlightId

from .workers import Workers

_NOTHING: dict[type, type[LookupDone | FetchDone | StoreDone | DeleteDone]] = {
    Lookup: LookupDone,
    Fetch: FetchDone,
    Store: StoreDone,
}


class StorageExecutor:
    """Answers each submitted action exactly once, in any order."""

    def __init__(self) -> None:
        self._workers: Workers | None = None
        self._queued: list[StorageAction] = []
        self._answers: list[StorageReply] = []

    def use(self, workers: Workers | None) -> None:
        """Give all further actions to these threads. Those before may have open actions only if
        they were closed: their answers are taken now."""
        if self._workers is not None:
            self._answers += self._workers.poll()
        self._workers = workers

    def submit(self, action: StorageAction) -> None:
        """Queue an action. Nothing moves before `start`."""
        self._queued.append(action)

    def abandon(self, flight: FlightId) -> None:
        """Answer an action as soon as possible, with what has been done."""
        self.start()
        if self._workers is not None:
            self._workers.abandon(flight)

    def start(self) -> None:
        """Begin everything that is queued."""
        if not self._queued:
            return
        actions, self._queued = self._queued, []
        if self._workers is not None:
            self._workers.begin(actions)
            return
        for action in actions:
            if type(action) is Delete:
                self._answers.append(DeleteDone(action.flight, False))
            else:
                self._answers.append(_NOTHING[type(action)](action.flight))

    def poll(self) -> list[StorageReply]:
        """Answers since the last call."""
        answers, self._answers = self._answers, []
        if self._workers is not None:
            answers += self._workers.poll()
        return answers
