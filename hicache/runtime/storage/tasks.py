"""Lookup, fetch, store and delete, step by step, as a worker thread carries them out.

Each counts what it has done in `work.progress`, which is the answer whenever the task ends or is
given up. Every call of the store goes through `work.ask`, and every access to host pages through
`work.touching`; both end the task if it was answered meanwhile. Does not know threads; see
`workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from hicache.core.actions import Fetch, Lookup, Store
from hicache.storage.base import Status, Storage, Value
from hicache.storage.keys import context_key

from .pages import Item, StoredPages

T = TypeVar("T")
_GONE = (Status.DONE, Status.MISSING)


class Work(Protocol):
    """One task and what it may use."""

    store: Storage
    pages: StoredPages
    progress: int
    staging: memoryview | None  # None: the store uses the memory of the host pages themselves

    @property
    def batch_bytes(self) -> int: ...

    @property
    def batch_keys(self) -> int: ...

    def ask(self, call: Callable[[], T]) -> T:
        """Call the store."""

    def touching(self) -> AbstractContextManager[None]:
        """Use host pages: the task is not answered before the end of the block."""


def look_up(work: Work, action: Lookup) -> None:
    """The deepest boundary at which every component has what it requires."""
    asked = len(action.digests)
    known = {
        component: _Presence(work, component, action.digests) for component in work.pages.components
    }
    windows = dict(zip(known, action.trailing_pages, strict=True))
    end = asked
    for number, (component, presence) in enumerate(known.items()):
        if not windows[component]:
            at = 0 if number else action.known_pages
            while at < end and presence.has(at):
                at += 1
            end = min(end, at)
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
    work.progress = end


class _Presence:
    """Which pages of a component are in storage, in all of its pools; asked for in batches."""

    def __init__(self, work: Work, component: str, digests: Sequence[bytes]) -> None:
        self._work = work
        self._component = component
        self._digests = digests
        self._found: dict[int, bool] = {}

    def has(self, at: int) -> bool:
        if at not in self._found:
            size = self._work.batch_keys
            first = at // size * size
            self._ask(first, self._digests[first : first + size])
        return self._found[at]

    def _ask(self, first: int, digests: Sequence[bytes]) -> None:
        there = [True] * len(digests)
        for keys in self._work.pages.keys(self._component, digests):
            found = self._work.ask(partial(self._work.store.lookup, keys))
            there = [one and bool(other) for one, other in zip(there, found, strict=True)]
        self._found |= dict(enumerate(there, first))


def fetch(work: Work, action: Fetch) -> None:
    """Read the pages of all pieces. One that fails limits the answer, and those behind it are not
    read any more."""
    items = [item for piece in action.pieces for item in work.pages.items(piece, written=False)]
    # The least depth among the items from each one on.
    least = [action.first_page + action.pages]
    for item in reversed(items):
        least.append(min(item.depth, least[-1]))
    least.reverse()
    short = least[-1]  # a page at this depth is missing, or the whole is there
    done = 0
    for batch in _batches(items, work.batch_bytes):
        wanted = [item for item in batch if item.depth < short]
        arrived = _read(work, wanted)
        lost = [item.depth for item, fine in zip(wanted, arrived, strict=True) if not fine]
        short = min([short, *lost])
        done += len(batch)
        work.progress = max(0, min(short, least[done]) - action.first_page)
    work.progress = max(0, short - action.first_page)


def _read(work: Work, batch: Sequence[Item]) -> list[bool]:
    """Read the pages of a batch. Returns whether each was there and verified, in every pool."""
    keys = [key for item in batch for key in item.keys]
    if not keys:
        return [True] * len(batch)
    if work.staging is None:
        with work.touching():
            return _fine(batch, work.ask(partial(work.store.read, keys, _in_place(batch))))
    staged = _staged(work.staging, batch)
    arrived = _fine(batch, work.ask(partial(work.store.read, keys, _values(staged))))
    buffers = iter(staged)
    with work.touching():
        for item, fine in zip(batch, arrived, strict=True):
            for pool in item.pools:
                buffer = next(buffers)
                if fine:
                    pool.load(item.page, buffer)
    return arrived


def store(work: Work, action: Store) -> None:
    """Write the pages of all pieces, until one fails."""
    items = (item for piece in action.pieces for item in work.pages.items(piece, written=True))
    for batch in _batches(items, work.batch_bytes):
        written = _write(work, batch)
        if not all(written):
            work.progress += written.index(False)
            return
        work.progress += len(batch)


def _write(work: Work, batch: Sequence[Item]) -> list[bool]:
    """Write the pages of a batch. Returns whether each was stored, in every pool."""
    keys = [key for item in batch for key in item.keys]
    if not keys:
        return [True] * len(batch)
    if work.staging is None:
        with work.touching():
            return _fine(batch, work.ask(partial(work.store.write, keys, _in_place(batch))))
    staged = _staged(work.staging, batch)
    buffers = iter(staged)
    with work.touching():
        for item in batch:
            for pool in item.pools:
                pool.save(item.page, next(buffers))
    return _fine(batch, work.ask(partial(work.store.write, keys, _values(staged))))


def delete(work: Work) -> None:
    """Delete every page of this cache, of all ranks. Progress is 1 if all of them are gone."""
    document = context_key(work.pages.context)
    entries = work.ask(lambda: iter(work.store.entries(f"{work.pages.context}/")))
    while found := work.ask(lambda: list(islice(entries, work.batch_keys))):
        keys = [entry.key for entry in found if entry.key != document]
        if any(status not in _GONE for status in work.ask(partial(work.store.delete, keys))):
            return
    work.progress = 1


def describe(work: Work) -> None:
    """Store what the keys of this cache depend on, for people to read."""
    if work.pages.document:
        key, value = context_key(work.pages.context), (memoryview(work.pages.document),)
        work.ask(partial(work.store.write, [key], [value]))


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
