"""Storage at run time: what of a page is kept and under which keys, the threads that carry out
actions, and a store that is attached and detached while requests run.

Nothing that a store does may block the thread that asks for answers. So every action is a task in a
queue, worker threads take tasks, and a task can be answered before its thread is done with it:

    queued ---> a thread calls the store ---> it uses host pages ---> answered
       |                   |  too long, or abandoned      (never answered here)
       +-------------------+------------------------------------------> answered

A thread that hangs in a call keeps its own staging memory and nothing else: it was given no memory
of host pages, so they can go to others.

    attach   open the store, start its threads, tell the core (`StorageAttached`)
    detach   tell the core (`DetachWanted`); when no action is in flight any more
             (`StorageDetached`), end the threads and close the store
    force    the same, but close the store at once, so that its calls under way fail
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from hicache.core.actions import (
    Delete,
    Fetch,
    Lookup,
    Outcome,
    Piece,
    Refused,
    StorageAction,
    StorageDetached,
    Store,
)
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import DetachWanted, Event, StorageAttached, StorageReply
from hicache.core.types import TransferId
from hicache.core.view import CoreView
from hicache.storage.address import open_store, parse
from hicache.storage.base import Losses, Status, Storage, StorageOptions, Value, batches, watching
from hicache.storage.keys import Context, context_key, page_keys, shard

from .driver import REPLY_TO, Driver
from .ranks import Agreement, looked_up


class PagePool(Protocol):
    """The host pages of one pool. shared: whether every rank has the same bytes.
    `hicache/memory/pools` has it with real bytes."""

    @property
    def name(self) -> str: ...
    @property
    def page_bytes(self) -> int: ...
    @property
    def shared(self) -> bool: ...
    def save(self, page: int, target: memoryview) -> None:
        """Copy a page's bytes to a buffer."""

    def load(self, page: int, source: memoryview) -> None:
        """Copy a page's bytes from a buffer."""


class Rank(NamedTuple):
    """One rank among those that share a cache: of tensor and of pipeline parallelism. own_store: it
    has a store to itself, such as a folder on its own disk, and writes there all that it reads."""

    rank: int = 0
    ranks: int = 1
    stage: int = 0
    stages: int = 1
    own_store: bool = False


class Place(NamedTuple):
    """One pool of a component. writes: whether this rank stores its pages."""

    pool: PagePool
    shard: str
    writes: bool


class Item(NamedTuple):
    """One page of a piece. keys: one for each of `pools`."""

    depth: int
    page: int
    keys: tuple[str, ...]
    pools: tuple[PagePool, ...]

    def bytes(self) -> int:
        return sum(pool.page_bytes for pool in self.pools)


class StoredPages:
    """The pages of one rank in storage: in which pools, and under which keys."""

    def __init__(
        self, context: Context, pools: Mapping[str, Sequence[PagePool]], rank: Rank | None = None
    ) -> None:
        """context: what this cache shares pages with. pools: those that have bytes, by component in
        the order of the configuration."""
        place = rank or Rank()
        self.context = context.digest
        describes = place.own_store or place.rank == place.stage == 0
        self.document = context.text.encode("ascii") if describes else b""
        self._places = {
            component: tuple(
                Place(
                    pool,
                    shard(*place[:4], shared=pool.shared),
                    writes=place.own_store or not (pool.shared and place.rank),
                )
                for pool in each
            )
            for component, each in pools.items()
        }
        self.components = tuple(self._places)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest page number, over its pools."""
        sums = [sum(place.pool.page_bytes for place in each) for each in self._places.values()]
        return max(sums, default=0)

    def keys(self, component: str, digests: Sequence[bytes]) -> list[list[str]]:
        """For each pool of the component, the keys of these pages."""
        return [self._keys(place, digests) for place in self._places[component]]

    def items(self, piece: Piece, *, written: bool) -> Iterator[Item]:
        """The pages of a piece. written: only in the pools that this rank stores."""
        chosen = [place for place in self._places[piece.component] if place.writes or not written]
        pools = tuple(place.pool for place in chosen)
        columns = [self._keys(place, piece.digests) for place in chosen]
        rows = zip(*columns, strict=True) if columns else ((),) * len(piece.digests)
        for offset, (page, keys) in enumerate(zip(piece.pages.tolist(), rows, strict=True)):
            yield Item(piece.first_page + offset, page, tuple(keys), pools)

    def _keys(self, place: Place, digests: Sequence[bytes]) -> list[str]:
        return page_keys(self.context, place.pool.name, place.shard, digests)


# -- threads

T = TypeVar("T")
_GONE = (Status.DONE, Status.MISSING)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """readers: threads for lookups and fetches. writers: threads for stores and deletes.
    batch_bytes: of the values of one call, if one page is not larger. batch_keys: of one lookup or
    delete. call_s: the bound on every wait: after that long without progress a call of the store
    counts as hung. every_boundary: lookups find all boundaries and not only the deepest, for ranks
    that agree on one."""

    readers: int = 4
    writers: int = 2
    batch_bytes: int = 16 << 20
    batch_keys: int = 256
    call_s: float = 5.0
    every_boundary: bool = False

    def __post_init__(self) -> None:
        for name in ("readers", "writers", "batch_bytes", "batch_keys", "call_s"):
            if getattr(self, name) <= 0:
                raise CallerError(f"{name}: expected more than 0, found {getattr(self, name)}")


class _GivenUp(Exception):
    """The task was answered, or is to stop."""


class Task:
    """One action. Every call of the store goes through `ask`, and every access to host pages
    through `using_pages`; both end the task if it was answered meanwhile.

    progress: what it has done so far, the answer whenever it ends or is given up. boundaries: of a
    lookup, all of them, if they are wanted. called_s: when the call under way began, or last made
    progress. touching: its thread uses host pages, so it must not be answered. stop: nobody waits
    for it."""

    def __init__(self, action: StorageAction | None, workers: Workers) -> None:
        self.action = action
        self.store, self.pages, self.options = workers.store, workers.pages, workers.options
        self.staging = memoryview(b"")  # of its thread
        self.progress = self.boundaries = self._calls = 0
        self.called_s: float | None = None
        self.touching = self.stop = self.answered = False
        self._changed, self._now = workers.changed, workers.now

    def reply(self) -> StorageReply | None:
        action = self.action
        if action is None:
            return None
        if self.boundaries:
            return looked_up(action.transfer, self.boundaries)
        made: StorageReply = REPLY_TO[type(action)](action.transfer, self.progress)
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


class _CallQueue:
    """Tasks of one kind of thread. running: those that a thread has, answered ones too."""

    def __init__(self, threads: int) -> None:
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
        options: WorkerOptions,
    ) -> None:
        """now: seconds of a clock that never goes back."""
        self.store, self.pages, self.options = store, pages, options
        self.now = now
        self._crashed: Exception | None = None
        self.changed = threading.Condition()
        self._open: dict[TransferId, Task] = {}
        self._answers: list[StorageReply] = []
        self._closed = False
        self._call_queues = (_CallQueue(options.readers), _CallQueue(options.writers))
        self._call_queues[1].queue.append(Task(None, self))
        for calls_of in self._call_queues:
            for _ in range(calls_of.threads):
                threading.Thread(
                    target=self._run, args=(calls_of,), name="storage", daemon=True
                ).start()

    def begin(self, actions: Sequence[StorageAction]) -> None:
        """Queue actions for the threads."""
        with self.changed:
            for action in actions:
                task = self._open[action.transfer] = Task(action, self)
                if self._closed:
                    self._stop(task)
                else:
                    self._call_queues[type(action) in (Store, Delete)].queue.append(task)
            self.changed.notify_all()

    def abandon(self, transfer: TransferId) -> None:
        """Answer an action with what has been done, as soon as its thread lets go of host pages."""
        with self.changed:
            if transfer in self._open:
                self._stop(self._open[transfer])

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
            for calls_of in self._call_queues:
                calls_of.queue.clear()
            self.changed.notify_all()

    def _give_up_hung(self) -> bool:
        """Answer the tasks whose calls hang, and those in a queue whose every thread does. Returns
        whether there are any."""
        any_hung = False
        for calls_of in self._call_queues:
            hung = [task for task in calls_of.running if self._hangs(task)]
            any_hung = any_hung or bool(hung)
            if len(hung) == calls_of.threads:
                hung += calls_of.queue
                calls_of.queue.clear()
            for task in hung:
                self._stop(task)
        if any_hung:
            self.changed.notify_all()  # a delete no longer waits for them
        return any_hung

    def _may_begin(self, calls_of: _CallQueue) -> bool:
        """Whether the next task may begin. A delete is alone, so that no store that began before it
        ends behind it; one that hangs is not waited for."""
        if not calls_of.queue:
            return False
        others = [task for task in calls_of.running if not self._hangs(task)]
        if type(calls_of.queue[0].action) is Delete:
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
            del self._open[reply.transfer]
            self._answers.append(reply)

    def _run(self, calls_of: _CallQueue) -> None:
        size = max(self.options.batch_bytes, self.pages.largest_bytes)
        staging = memoryview(bytearray(size))
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._closed or self._may_begin(calls_of))
                if self._closed:
                    return
                task = calls_of.queue.popleft()
                if task.answered:
                    continue
                task.staging = staging
                calls_of.running.append(task)
            try:
                _carry_out(task)
            except _GivenUp:
                pass
            except Exception as error:
                self._crashed = error
            with self.changed:
                calls_of.running.remove(task)
                self._answer(task)
                self.changed.notify_all()


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
    count = len(action.digests)
    known = {
        component: _Presence(task, component, action.digests) for component in task.pages.components
    }
    windows = dict(zip(known, action.trailing_pages, strict=True))
    end = count
    for number, (component, presence) in enumerate(known.items()):
        if not windows[component]:
            at = 0 if number else action.known_pages
            while at < end and presence.has(at):
                at += 1
            end = min(end, at)
    if task.options.every_boundary:
        lasts = [
            restorable(end, window, known[text].has) for text, window in windows.items() if window
        ]
        ends = set(range(1, end + 1)).intersection(*lasts)
        task.boundaries = sum(1 << pages - 1 for pages in ends)
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


def restorable(pages: int, last: int, has: Callable[[int], bool]) -> set[int]:
    """The lengths of prefixes, of at most so many pages, that are there. last: how many of its last
    pages a prefix needs; 0: all. has: whether a page is there."""
    lengths, run = set(), 0
    for end in range(1, pages + 1):
        run = run + 1 if has(end - 1) else 0
        if run >= min(end, last or end):
            lengths.add(end)
    return lengths


class _Presence:
    """Which pages of a component are in storage, in all of its pools; asked for in batches."""

    def __init__(self, task: Task, component: str, digests: Sequence[bytes]) -> None:
        self._task = task
        self._component = component
        self._digests = digests
        self._present: dict[int, bool] = {}

    def has(self, at: int) -> bool:
        if at not in self._present:
            size = self._task.options.batch_keys
            first = at // size * size
            self._ask(first, self._digests[first : first + size])
        return self._present[at]

    def _ask(self, first: int, digests: Sequence[bytes]) -> None:
        there = [True] * len(digests)
        for keys in self._task.pages.keys(self._component, digests):
            result = self._task.ask(partial(self._task.store.lookup, keys))
            there = [item and bool(other) for item, other in zip(there, result, strict=True)]
        self._present |= dict(enumerate(there, first))


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
    for batch in batches(items, Item.bytes, task.options.batch_bytes):
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
    for batch in batches(items, Item.bytes, task.options.batch_bytes):
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
    with suppress(OSError):  # it cannot be asked what it has
        entries = task.ask(lambda: iter(task.store.entries(f"{task.pages.context}/")))
        while result := task.ask(lambda: list(islice(entries, task.options.batch_keys))):
            keys = [entry.key for entry in result if entry.key != document]
            if any(status not in _GONE for status in task.ask(partial(task.store.delete, keys))):
                return
        task.progress = 1


def describe(task: Task) -> None:
    """Store what the keys of this cache depend on, for people to read."""
    if task.pages.document:
        key, value = context_key(task.pages.context), (memoryview(task.pages.document),)
        task.ask(partial(task.store.write, [key], [value]))


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


def _fine(batch: Sequence[Item], statuses: Sequence[Status]) -> list[bool]:
    """Whether every value of each item is `DONE`."""
    answers = iter(statuses)
    return [set(islice(answers, len(item.pools))) <= {Status.DONE} for item in batch]


class StorageExecutor:
    """Answers each submitted action exactly once, in any order. It outlives the stores that it
    uses: without one, every action is answered at once: nothing is found, and nothing is stored."""

    def __init__(self) -> None:
        self._workers: Workers | None = None
        self._queued: list[StorageAction] = []
        self._answers: list[StorageReply] = []

    def use(self, workers: Workers) -> None:
        """Give all further actions to these threads. Those before were closed, for the core gives
        no action without a store: their answers are taken now."""
        if self._workers is not None:
            self._answers += self._workers.poll()
        self._workers = workers

    def submit(self, action: StorageAction) -> None:
        """Queue an action. Nothing moves before `start`."""
        self._queued.append(action)

    def abandon(self, transfer: TransferId) -> None:
        """Answer an action as soon as possible, with what has been done."""
        self.start()
        if self._workers is not None:
            self._workers.abandon(transfer)

    def start(self) -> None:
        """Begin everything that is queued."""
        if not self._queued:
            return
        actions, self._queued = self._queued, []
        if self._workers is not None:
            self._workers.begin(actions)
            return
        self._answers += [REPLY_TO[type(action)](action.transfer, 0) for action in actions]

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

    def attach(self, address: str, options: StorageOptions | None = None) -> list[Outcome]:
        """Open a store, checked and guarded, and attach it. Raises CallerError for what a person
        can mend. It may take as long as the store takes to connect."""
        self._check_none()
        options, call_s = options or StorageOptions(), self._options.call_s
        store = open_store(parse(address), options, self._now, self._notice, call_s)
        return self.attach_store(store)

    def attach_store(self, store: Storage) -> list[Outcome]:
        """Attach an open store. The core may refuse ("detaching"); then the store is closed again.
        Several ranks must all have opened it before one attaches it."""
        self._check_none()
        workers = Workers(store, self._pages, self._now, self._options)
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
        tells = self._driver.core.view.attached and not self._driver.detached
        outcomes = self._driver.feed(DetachWanted()) if tells else []
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
