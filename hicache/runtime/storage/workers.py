"""Threads that carry out actions for storage, each action with exactly one answer.

Nothing that a store does may block the thread that asks for answers. So every action is a task in a
queue, worker threads take tasks, and a task can be answered before its thread is done with it:

    queued ---> a thread calls the store ---> it uses host pages ---> answered
       |                   |  too long, or abandoned      (never answered here)
       +-------------------+------------------------------------------> answered

A thread that hangs in a call keeps its task's staging memory and nothing else: it was given no
memory of host pages, so they can go to others. With `zero_copy` the store works in the host pages
themselves. Then a task is answered only when its call has returned, however long that takes.

Does not know what a task does; see `tasks`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from hicache.core.actions import Delete, Fetch, Lookup, StorageAction, Store
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.core.types import FlightId
from hicache.storage.base import Storage

from . import tasks
from .pages import StoredPages

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """readers: threads for lookups and fetches. writers: threads for stores and deletes.
    batch_bytes: of the values of one call, if one page is not larger. batch_keys: of one lookup or
    delete. call_s: after that long a call of the store counts as hung. zero_copy: the store reads
    and writes host pages in their place. Raises CallerError for values below 1, or for no time."""

    readers: int = 4
    writers: int = 2
    batch_bytes: int = 16 << 20
    batch_keys: int = 256
    call_s: float = 5.0
    zero_copy: bool = False

    def __post_init__(self) -> None:
        for name in ("readers", "writers", "batch_bytes", "batch_keys"):
            if getattr(self, name) < 1:
                raise CallerError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.call_s <= 0:
            raise CallerError(f"call_s: expected more than 0 seconds, found {self.call_s}")


class _GivenUp(Exception):
    """The task was answered, or is to stop."""


class _StoreRaised(Exception):
    """The store raised an error, which no store may do."""


class Task:
    """One action. progress: what it has done so far. called_s: when the call under way began.
    touching: its thread uses host pages, so it must not be answered. stop: nobody waits for it."""

    def __init__(self, action: StorageAction | None) -> None:
        self.action = action
        self.progress = 0
        self.called_s: float | None = None
        self.touching = self.stop = self.answered = False

    def reply(self) -> StorageReply | None:
        action = self.action
        return None if action is None else _REPLIES[type(action)](action.flight, self.progress)


_REPLIES: dict[type, Callable[[FlightId, int], StorageReply]] = {
    Lookup: LookupDone,
    Fetch: FetchDone,
    Store: StoreDone,
    Delete: lambda flight, done: DeleteDone(flight, bool(done)),
}


class _Lane:
    """Tasks of one kind of thread. running: those that a thread has, answered ones too."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self.queue: deque[Task] = deque()
        self.running: list[Task] = []


class Workers:
    """The threads of one open store. All methods return at once; one thread may call them."""

    def __init__(
        self,
        store: Storage,
        pages: StoredPages,
        now: Callable[[], float],
        notice: Callable[[str], None],
        options: WorkerOptions,
    ) -> None:
        """now: seconds of a clock that never goes back. notice: gets a sentence if the store
        raises an error."""
        self.store, self.pages, self.options = store, pages, options
        self.now = now
        self._notice = notice
        self._raised: set[type] = set()
        self._crashed: Exception | None = None
        self.changed = threading.Condition()
        self._open: dict[FlightId, Task] = {}
        self._answers: list[StorageReply] = []
        self._closed = False
        self._lanes = (_Lane("read", options.readers), _Lane("write", options.writers))
        size = max(options.batch_bytes, pages.largest_bytes)
        in_place = options.zero_copy and pages.in_place
        memory = [
            None if in_place else memoryview(bytearray(size))
            for lane in self._lanes
            for _ in range(lane.threads)
        ]
        store.register(pages.memory() if in_place else [one for one in memory if one is not None])
        self._lanes[1].queue.append(Task(None))
        for lane in self._lanes:
            for number in range(lane.threads):
                threading.Thread(
                    target=self._run,
                    args=(lane, memory.pop()),
                    name=f"storage-{lane.name}-{number}",
                    daemon=True,
                ).start()

    # -- the caller's thread

    def begin(self, actions: Sequence[StorageAction]) -> None:
        """Queue actions for the threads."""
        with self.changed:
            for action in actions:
                task = self._open[action.flight] = Task(action)
                if self._closed:
                    self._stop(task)
                    continue
                lane = self._lanes[type(action) in (Store, Delete)]
                lane.queue.append(task)
            self.changed.notify_all()

    def abandon(self, flight: FlightId) -> None:
        """Answer an action with what has been done, as soon as its thread lets go of host pages."""
        with self.changed:
            task = self._open.get(flight)
            if task is not None:
                self._stop(task)

    def poll(self) -> list[StorageReply]:
        """Answers since the last call. Raises CoreBug if a thread failed for another reason than
        the store."""
        with self.changed:
            hung = self._give_up_hung()
            answers, self._answers = self._answers, []
            if self._crashed is not None:
                raise CoreBug(f"a thread for storage failed: {self._crashed!r}") from self._crashed
        if hung:
            self.store.poll()
        return answers

    def close(self) -> None:
        """Answer everything as soon as possible and end the threads. Those that hang in a call end
        when it returns."""
        with self.changed:
            self._closed = True
            for task in list(self._open.values()):
                self._stop(task)
            for lane in self._lanes:
                lane.queue.clear()
            self.changed.notify_all()

    def _give_up_hung(self) -> bool:
        """Answer the tasks whose calls hang, and those in a queue whose every thread does. Returns
        whether there are any."""
        found = False
        for lane in self._lanes:
            hung = [task for task in lane.running if self._hangs(task)]
            found = found or bool(hung)
            for task in hung:
                self._stop(task)
            if len(hung) == lane.threads:
                for task in lane.queue:
                    self._stop(task)
                lane.queue.clear()
        if found:
            self.changed.notify_all()  # a delete no longer waits for them
        return found

    def _may_begin(self, lane: _Lane) -> bool:
        """Whether the next task may begin. A delete is alone, so that no store that began before it
        ends behind it; one that hangs is not waited for."""
        if not lane.queue:
            return False
        others = [task for task in lane.running if not self._hangs(task)]
        if type(lane.queue[0].action) is Delete:
            return not others
        return all(type(task.action) is not Delete for task in others)

    def _hangs(self, task: Task) -> bool:
        return task.called_s is not None and self.now() - task.called_s > self.options.call_s

    def _stop(self, task: Task) -> None:
        task.stop = True
        if not task.touching:
            self._answer(task)

    def _answer(self, task: Task) -> None:
        if task.answered:
            return
        task.answered = True
        reply = task.reply()
        if reply is not None:
            del self._open[reply.flight]
            self._answers.append(reply)

    # -- a worker's thread

    def _run(self, lane: _Lane, staging: memoryview | None) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._closed or self._may_begin(lane))
                if self._closed:
                    return
                task = lane.queue.popleft()
                if task.answered:
                    continue
                lane.running.append(task)
            try:
                _carry_out(_Worker(self, task, staging), task.action)
            except _GivenUp:
                pass
            except _StoreRaised as raised:
                self._tell(raised.__cause__)
            except Exception as error:
                self._crashed = error
            with self.changed:
                lane.running.remove(task)
                self._answer(task)
                self.changed.notify_all()

    def _tell(self, error: BaseException | None) -> None:
        """One notice for each kind of error of an open store."""
        with self.changed:
            known = self._closed or type(error) in self._raised
            self._raised.add(type(error))
        if not known:
            self._notice(f"storage: expected a status, found an error, taken for FAILED: {error!r}")


class _Worker:
    """Implements `tasks.Work` for one task on one thread."""

    def __init__(self, workers: Workers, task: Task, staging: memoryview | None) -> None:
        self._workers = workers
        self._task = task
        self.store, self.pages = workers.store, workers.pages
        self.staging = staging
        self.batch_bytes = workers.options.batch_bytes
        self.batch_keys = workers.options.batch_keys

    @property
    def progress(self) -> int:
        return self._task.progress

    @progress.setter
    def progress(self, done: int) -> None:
        self._task.progress = done

    def ask(self, call: Callable[[], T]) -> T:
        task, changed = self._task, self._workers.changed
        with changed:
            self._check()
            task.called_s = self._workers.now()
        try:
            return call()
        except Exception as error:
            raise _StoreRaised from error
        finally:
            with changed:
                task.called_s = None

    @contextmanager
    def touching(self) -> Iterator[None]:
        task, changed = self._task, self._workers.changed
        with changed:
            self._check()
            task.touching = True
        try:
            yield
        finally:
            with changed:
                task.touching = False

    def _check(self) -> None:
        if self._task.stop or self._task.answered:
            raise _GivenUp


def _carry_out(work: _Worker, action: StorageAction | None) -> None:
    if isinstance(action, Lookup):
        tasks.look_up(work, action)
    elif isinstance(action, Fetch):
        tasks.fetch(work, action)
    elif isinstance(action, Store):
        tasks.store(work, action)
    elif isinstance(action, Delete):
        tasks.delete(work)
    else:
        tasks.describe(work)
