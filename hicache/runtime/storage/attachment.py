"""Attach a store to a running cache, and detach it; and the executor that uses it meanwhile.

    attach   open the store, start its threads, tell the core (`StorageAttached`)
    detach   tell the core (`DetachWanted`); when no action is in flight any more
             (`StorageDetached`), end the threads and close the store
    force    the same, but close the store at once, so that its calls under way fail

The core learns of it by events, as of everything else, so a recording has them and all ranks decide
the same. Does not decide what is stored, see `hicache/core/storage`, or know what a store is, see
`hicache/storage`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from hicache.core.actions import Outcome, Refused, StorageAction, StorageDetached
from hicache.core.errors import CallerError
from hicache.core.events import DetachWanted, Event, StorageAttached, StorageReply
from hicache.core.types import FlightId
from hicache.core.view import CoreView
from hicache.storage.address import open_store, parse
from hicache.storage.base import Losses, Storage, StorageOptions
from hicache.storage.breaker import BreakerOptions

from ..agreement import Agreement
from ..driver import REPLY_TO, Driver
from .pages import StoredPages
from .workers import WorkerOptions, Workers


class StorageExecutor:
    """Answers each submitted action exactly once, in any order. It outlives the stores that it
    uses: without one, every action is answered at once: nothing is found, and nothing is stored."""

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
        self._answers += [REPLY_TO[type(action)](action.flight, 0) for action in actions]

    def poll(self) -> list[StorageReply]:
        """Answers since the last call."""
        answers, self._answers = self._answers, []
        if self._workers is not None:
            answers += self._workers.poll()
        return answers


class Attachment:
    """The store of one driver, whose executor passes actions for storage to `executor`. It observes
    the driver. No method waits for a store, but `open` and `wait_closed`."""

    def __init__(
        self,
        driver: Driver,
        executor: StorageExecutor,
        pages: StoredPages,
        now: Callable[[], float],
        notice: Callable[[str], None],
        options: WorkerOptions | None = None,
    ) -> None:
        """now: seconds of a clock that never goes back. notice: gets a sentence for a person when
        the store stops answering and when it answers again, on any thread."""
        self._driver, self._executor, self._pages = driver, executor, pages
        self._now, self._notice = now, notice
        self._options = options or WorkerOptions()
        if isinstance(driver.executor, Agreement) and driver.executor.group.size > 1:
            self._options = replace(self._options, every_boundary=True)
        self._store: Storage | None = None
        self._workers: Workers | None = None
        self._closing: list[threading.Thread] = []
        self._outages = 0
        self._past = Losses()  # of stores that are detached
        driver.observers = (*driver.observers, self)

    @property
    def store(self) -> Storage | None:
        """The open store."""
        return self._store

    @property
    def losses(self) -> Losses:
        """What the stores that were attached so far did not do."""
        return self._past if self._store is None else self._past + self._store.losses

    def open(self, address: str, options: StorageOptions | None = None) -> Storage:
        """Open a store, checked and guarded, for `attach_store`. Raises CallerError for what a
        person can mend. It may take as long as the store takes to connect."""
        breaker = BreakerOptions(slow_s=self._options.call_s)
        options = options or StorageOptions()
        return open_store(parse(address), options, self._now, self._notice, breaker)

    def attach(self, address: str, options: StorageOptions | None = None) -> list[Outcome]:
        """Open a store and attach it."""
        self._check_none()
        return self.attach_store(self.open(address, options))

    def attach_store(self, store: Storage) -> list[Outcome]:
        """Attach an open store. The core may refuse ("detaching"); then the store is closed again.
        Several ranks must all have opened it before one attaches it."""
        self._check_none()
        workers = Workers(store, self._pages, self._now, self._notice, self._options)
        outcomes = self._driver.feed(StorageAttached())
        if any(isinstance(outcome, Refused) for outcome in outcomes):
            workers.close()
            self._close(store)
            return outcomes
        self._store, self._workers, self._outages = store, workers, 0
        self._executor.use(workers)
        return outcomes

    @property
    def was_out(self) -> bool:
        """Whether the store was out and came back since it was attached or renewed. To be asked now
        and then."""
        return self._store is not None and self._store.poll() > self._outages

    def renew(self) -> list[Outcome]:
        """Forget what the store is believed to have, because it may have lost everything while it
        was out. On several ranks, all of them must do it."""
        if self._store is None or not self._driver.core.view.attached:
            return []
        self._outages = self._store.poll()
        return self._driver.feed(StorageAttached())

    def detach(self, force: bool = False) -> list[Outcome]:
        """Detach the store. It is closed with the outcome `StorageDetached`, here or of a later
        reply; with `force` at once. Force may also follow a detach that takes too long. Raises
        CallerError if no store is attached."""
        if self._workers is None:
            raise CallerError("storage: expected an attached one, found none; attach one first")
        outcomes = self._driver.feed(DetachWanted()) if self._driver.core.view.attached else []
        if force:
            self._end()
        return outcomes

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait until detached stores are closed. Returns whether they are."""
        for thread in self._closing:
            thread.join(timeout_s)
        self._closing = [thread for thread in self._closing if thread.is_alive()]
        return not self._closing

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: only outcomes matter."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if outcomes and type(outcomes[-1]) is StorageDetached:
            self._end()
            self._executor.use(None)
            self._workers = None

    def _check_none(self) -> None:
        if self._workers is not None:
            raise CallerError("storage: expected none, found one that is attached; detach it first")

    def _end(self) -> None:
        """End the threads and close the store, once."""
        if self._workers is not None and self._store is not None:
            self._workers.close()
            self._past += self._store.losses
            self._close(self._store)
            self._store = None

    def _close(self, store: Storage) -> None:
        """On a thread of its own, because a store that hangs may also hang here."""
        thread = threading.Thread(target=store.close, name="storage-close", daemon=True)
        thread.start()
        self._closing.append(thread)
