"""Threads that carry out actions for storage, each action with exactly one answer.

Nothing that a store does may block the thread that asks for answers. So every action is a task in a
queue, worker threads take tasks, and a task can be answered before its thread is done with it:

    queued ---> a thread calls the store ---> it uses host pages ---> answered
       |                   |  too long, or abandoned      (never answered here)
       +-------------------+------------------------------------------> answered

A thread that hangs in a call keeps its task's staging memory and nothing else: it was given no
memory of host pages, so they can go to others. With `zero_copy` the store works in the host pages
themselves. Then a task is answered only when its call has returned, however long that takes.

What a task has done is counted in `Task.progress`. Every call of the store goes through `Task.ask`,
and every access to host pages through `Task.using_pages`; both end the task if it was answered
meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from hicache.core.actions import Delete, Fetch, Lookup, StorageAction, Store
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import StorageReply
from hicache.core.types import FlightId
from hicache.storage.base import Status, Storage, Value, watching
from hicache.storage.keys import context_key

from ..driver import REPLY_TO
from ..restorable import LookedUp
from .pages import Item, StoredPages

T = TypeVar("T")
_GONE = (Status.DONE, Status.MISSING)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """readers: threads for lookups and fetches. writers: threads for stores and deletes.
    batch_bytes: of the values of one call, if one page is not larger. batch_keys: of one lookup or
    delete. call_s: after that long without progress a call of the store counts as hung. zero_copy:
    the store reads and writes host pages in their place. every_boundary: lookups find all
    boundaries and not only the deepest, for ranks that agree on one. Raises CallerError for values
    below 1, or for no time."""

    readers: int = 4
    writers: int = 2
    batch_bytes: int = 16 << 20
    batch_keys: int = 256
    call_s: float = 5.0
    zero_copy: bool = False
    every_boundary: bool = False

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
    """One action. progress: what it has done so far, the answer whenever it ends or is given up.
    boundaries: of a lookup, all that were found, if they are asked for. called_s: when the call
    under way began, or last made progress. touching: its thread uses host pages, so it must not be
    answered. stop: nobody waits for it. staging: of its thread; None: the store uses the memory of
    the host pages themselves."""

    def __init__(
        self,
        action: StorageAction | None,
        store: Storage,
        pages: StoredPages,
        options: WorkerOptions,
        changed: threading.Condition,
        now: Callable[[], float],
    ) -> None:
        self.action = action
        self.store, self.pages, self.options = store, pages, options
        self.staging: memoryview | None = None
        self.progress = 0
        self.boundaries = 0
        self.called_s: float | None = None
        self._calls = 0
        self.touching = self.stop = self.answered = False
        self._changed, self._now = changed, now

    def reply(self) -> StorageReply | None:
        action = self.action
        if action is None:
            return None
        if self.boundaries:
            return LookedUp(action.flight, self.boundaries)
        made: StorageReply = REPLY_TO[type(action)](action.flight, self.progress)
        return made

    def ask(self, call: Callable[[], T]) -> T:
        """Call the store."""
        with self._changed:
            self._check()
            self.called_s = self._now()
            self._calls += 1
        try:
            with watching(partial(self._moved, self._calls)):
                return call()
        except Exception as error:
            raise _StoreRaised from error
        finally:
            with self._changed:
                self.called_s = None

    def _moved(self, number: int) -> None:
        """The call of this number made progress. It may have been given up long ago."""
        with self._changed:
            if number == self._calls and self.called_s is not None:
                self.called_s = self._now()

    @contextmanager
    def using_pages(self) -> Iterator[None]:
        """Use host pages: the task is not answered before the end of the block."""
        with self._changed:
            self._check()
            self.touching = True
        try:
            yield
        finally:
            with self._changed:
                self.touching = False

    def _check(self) -> None:
        if self.stop or self.answered:
            raise _GivenUp


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
        self._lanes[1].queue.append(self._task(None))
        for lane in self._lanes:
            for number in range(lane.threads):
                threading.Thread(
                    target=self._run,
                    args=(lane, memory.pop()),
                    name=f"storage-{lane.name}-{number}",
                    daemon=True,
                ).start()

    def _task(self, action: StorageAction | None) -> Task:
        return Task(action, self.store, self.pages, self.options, self.changed, self.now)

    # -- the caller's thread

    def begin(self, actions: Sequence[StorageAction]) -> None:
        """Queue actions for the threads."""
        with self.changed:
            for action in actions:
                task = self._open[action.flight] = self._task(action)
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
                task.staging = staging
                lane.running.append(task)
            try:
                _carry_out(task)
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


def _carry_out(task: Task) -> None:
    action = task.action
    if isinstance(action, Lookup):
        look_up(task, action)
    elif isinstance(action, Fetch):
        fetch(task, action)
    elif isinstance(action, Store):
        store(task, action)
    elif isinstance(action, Delete):
        delete(task)
    else:
        describe(task)


def look_up(task: Task, action: Lookup) -> None:
    """The deepest boundary at which every component has what it requires."""
    asked = len(action.digests)
    known = {
        component: _Presence(task, component, action.digests) for component in task.pages.components
    }
    windows = dict(zip(known, action.trailing_pages, strict=True))
    end = asked
    for number, (component, presence) in enumerate(known.items()):
        if not windows[component]:
            at = 0 if number else action.known_pages
            while at < end and presence.has(at):
                at += 1
            end = min(end, at)
    if task.options.every_boundary:
        task.boundaries = _boundaries(known, windows, end)
        return
    while end:
        missing = max(
            (
                at
                for component, window in windows.items()
                for at in range(max(0, end - window), end)
                if window and not known[component].has(at)
            ),
            default=-1,
        )
        if missing < 0:
            break
        end = missing
    task.progress = end


def _boundaries(known: dict[str, _Presence], windows: dict[str, int], end: int) -> int:
    """The set of boundaries up to `end` at which every window has its pages."""
    found = 0
    missing = dict.fromkeys((one for one, window in windows.items() if window), -1)
    for pages in range(1, end + 1):
        for component in missing:
            if not known[component].has(pages - 1):
                missing[component] = pages - 1
        if all(at < max(0, pages - windows[one]) for one, at in missing.items()):
            found |= 1 << pages - 1
    return found


class _Presence:
    """Which pages of a component are in storage, in all of its pools; asked for in batches."""

    def __init__(self, task: Task, component: str, digests: Sequence[bytes]) -> None:
        self._task = task
        self._component = component
        self._digests = digests
        self._found: dict[int, bool] = {}

    def has(self, at: int) -> bool:
        if at not in self._found:
            size = self._task.options.batch_keys
            first = at // size * size
            self._ask(first, self._digests[first : first + size])
        return self._found[at]

    def _ask(self, first: int, digests: Sequence[bytes]) -> None:
        there = [True] * len(digests)
        for keys in self._task.pages.keys(self._component, digests):
            found = self._task.ask(partial(self._task.store.lookup, keys))
            there = [one and bool(other) for one, other in zip(there, found, strict=True)]
        self._found |= dict(enumerate(there, first))


def fetch(task: Task, action: Fetch) -> None:
    """Read the pages of all pieces. One that fails limits the answer, and those behind it are not
    read any more."""
    items = [item for piece in action.pieces for item in task.pages.items(piece, written=False)]
    # The least depth among the items from each one on.
    least = [action.first_page + action.pages]
    for item in reversed(items):
        least.append(min(item.depth, least[-1]))
    least.reverse()
    short = least[-1]  # a page at this depth is missing, or the whole is there
    done = 0
    for batch in _batches(items, task.options.batch_bytes):
        wanted = [item for item in batch if item.depth < short]
        arrived = _read(task, wanted)
        lost = [item.depth for item, fine in zip(wanted, arrived, strict=True) if not fine]
        short = min([short, *lost])
        done += len(batch)
        task.progress = max(0, min(short, least[done]) - action.first_page)
    task.progress = max(0, short - action.first_page)


def _read(task: Task, batch: Sequence[Item]) -> list[bool]:
    """Read the pages of a batch. Returns whether each was there and verified, in every pool."""
    keys = [key for item in batch for key in item.keys]
    if not keys:
        return [True] * len(batch)
    if task.staging is None:
        with task.using_pages():
            return _fine(batch, task.ask(partial(task.store.read, keys, _in_place(batch))))
    staged = _staged(task.staging, batch)
    arrived = _fine(batch, task.ask(partial(task.store.read, keys, _values(staged))))
    buffers = iter(staged)
    with task.using_pages():
        for item, fine in zip(batch, arrived, strict=True):
            for pool in item.pools:
                buffer = next(buffers)
                if fine:
                    pool.load(item.page, buffer)
    return arrived


def store(task: Task, action: Store) -> None:
    """Write the pages of all pieces, until one fails."""
    items = (item for piece in action.pieces for item in task.pages.items(piece, written=True))
    for batch in _batches(items, task.options.batch_bytes):
        written = _write(task, batch)
        if not all(written):
            task.progress += written.index(False)
            return
        task.progress += len(batch)


def _write(task: Task, batch: Sequence[Item]) -> list[bool]:
    """Write the pages of a batch. Returns whether each was stored, in every pool."""
    keys = [key for item in batch for key in item.keys]
    if not keys:
        return [True] * len(batch)
    if task.staging is None:
        with task.using_pages():
            return _fine(batch, task.ask(partial(task.store.write, keys, _in_place(batch))))
    staged = _staged(task.staging, batch)
    buffers = iter(staged)
    with task.using_pages():
        for item in batch:
            for pool in item.pools:
                pool.save(item.page, next(buffers))
    return _fine(batch, task.ask(partial(task.store.write, keys, _values(staged))))


def delete(task: Task) -> None:
    """Delete every page of this cache, of all ranks. Progress is 1 if all of them are gone."""
    document = context_key(task.pages.context)
    entries = task.ask(lambda: iter(task.store.entries(f"{task.pages.context}/")))
    while found := task.ask(lambda: list(islice(entries, task.options.batch_keys))):
        keys = [entry.key for entry in found if entry.key != document]
        if any(status not in _GONE for status in task.ask(partial(task.store.delete, keys))):
            return
    task.progress = 1


def describe(task: Task) -> None:
    """Store what the keys of this cache depend on, for people to read."""
    if task.pages.document:
        key, value = context_key(task.pages.context), (memoryview(task.pages.document),)
        task.ask(partial(task.store.write, [key], [value]))


def _batches(items: Iterable[Item], most_bytes: int) -> Iterator[list[Item]]:
    """The items in order, in runs of at most so many bytes, or of one item."""
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and size + item.bytes > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.bytes
    if batch:
        yield batch


def _staged(memory: memoryview, batch: Sequence[Item]) -> list[memoryview]:
    """A buffer for each value of a batch, one after the other."""
    buffers = []
    start = 0
    for item in batch:
        for pool in item.pools:
            buffers.append(memory[start : start + pool.page_bytes])
            start += pool.page_bytes
    return buffers


def _values(buffers: Sequence[memoryview]) -> list[Value]:
    return [(buffer,) for buffer in buffers]


def _in_place(batch: Sequence[Item]) -> list[Value]:
    return [pool.buffers(item.page) for item in batch for pool in item.pools]


def _fine(batch: Sequence[Item], statuses: Sequence[Status]) -> list[bool]:
    """Whether every value of each item is `DONE`."""
    answers = iter(statuses)
    return [set(islice(answers, len(item.pools))) <= {Status.DONE} for item in batch]
