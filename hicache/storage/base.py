"""The interface of a storage backend: a store of values under keys, in batches.

A backend is a file in `backends`. It knows neither pages nor models: a key is a text (see `keys`),
and a value is a run of bytes that lies in several buffers. It moves bytes and says what became of
each value; `checksummed` checks them.

Each backend's file has `open_storage(address, options) -> Storage`, and `SUMMARY`, one line for the
help text. An import that needs an extra stands at the top of such a file: the file is imported when
an address names its scheme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from enum import StrEnum
from operator import add
from typing import NamedTuple, TypeAlias, TypeVar

from hicache.core.errors import CallerError

T = TypeVar("T")
Value: TypeAlias = tuple[memoryview, ...]
TIMEOUT_S = 1.0
_MOST_SECONDS = 86_400
_MOST_REASON = 200  # characters
_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)
_watching: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("watching", default=())


class Status(StrEnum):
    """What became of one value."""

    DONE = "done"
    MISSING = "missing"  # there is no such key
    CORRUPT = "corrupt"  # the key's value is not what was written: another length or other bytes
    FULL = "full"  # the store has no room
    FAILED = "failed"  # the store could not be asked, refused, or did not answer in time


class Entry(NamedTuple):
    """One stored value: its key, bytes with header, and when it was last used (Unix time, 0 if the
    store keeps no times)."""

    key: str
    size_bytes: int
    used_at_s: float


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """timeout_s: after that long without progress a call ends with `FAILED`, however long it took
    before. create: a store that is not there yet is made where that is possible; without, one is
    opened as it is, and a size in its address does not count."""

    timeout_s: float = TIMEOUT_S
    create: bool = True

    def __post_init__(self) -> None:
        """Raises CallerError for what no store can keep to."""
        if type(self.timeout_s) not in (int, float) or not 0 < self.timeout_s <= _MOST_SECONDS:
            raise CallerError(
                f"storage timeout_s: expected more than 0 and at most {_MOST_SECONDS:,} seconds, "
                f"found {self.timeout_s!r:.40}"
            )


@dataclass(slots=True)
class Losses:
    """What a store did not do since it was opened, in values, and what that cost.

    lookups_unanswered  keys of which the store did not say whether they are there.
    reads_failed, reads_missing, reads_corrupt  values that were asked for and did not arrive.
    writes_refused      values that were not acknowledged: no room, refused, or no answer, after
                        which they may be there all the same.
    deletes_failed      values that may be there still.
    outages, write_outages  how often it stopped answering, and how often only taking writes.
    late                answers that came after their call had been given up, and were ignored.
    waited_s            seconds in calls that failed.
    """

    lookups_unanswered: int = 0
    reads_failed: int = 0
    reads_missing: int = 0
    reads_corrupt: int = 0
    writes_refused: int = 0
    deletes_failed: int = 0
    outages: int = 0
    write_outages: int = 0
    late: int = 0
    waited_s: float = 0.0

    def __add__(self, other: Losses) -> Losses:
        return Losses(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Address:
    """`scheme:rest`, as in file:DIR, redis://HOST:PORT/0 or s3://BUCKET?endpoint=URL. `text` is the
    whole."""

    scheme: str
    rest: str

    @property
    def text(self) -> str:
        return f"{self.scheme}:{self.rest}"


class Storage(ABC):
    """One open store. Several threads may call it at a time. No call but `entries` raises for what
    a store does: each value gets a `Status`, and `tell` gets why one failed. `open_storage` raises
    CallerError for what a person can mend: an unreachable server, a directory of another format."""

    @abstractmethod
    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        """Whether each key is there; None: the store did not say. A hint: a value may be gone when
        it is read."""

    @abstractmethod
    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        """Read each key's value into the writable buffers of `values[i]`, one after the other.

        A value of another length than its buffers have together is `CORRUPT`. What the buffers hold
        after any status but `DONE` is not defined."""

    @abstractmethod
    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        """Write each value whole: after a crash at any point a key has the old value, the new one,
        none, or one that `checksummed` finds wrong. A key that exists gets the new value,
        or keeps the old one where the store cannot replace it."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> list[Status]:
        """Delete each key. `DONE` or `MISSING`: it is gone."""

    @abstractmethod
    def entries(self, prefix: str) -> Iterator[Entry]:
        """What is stored under keys that begin with `prefix`, in no order. Raises OSError if the
        store cannot be asked: an empty list would look like an empty store."""

    def stats(self) -> dict[str, int | float | str]:
        """Figures of this store, where it counts them itself."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """End connections and threads. Calls under way end with `FAILED`. Idempotent."""

    def troubles(self) -> str:
        """What was wrong when the store was opened, for a person to read; empty if nothing."""
        return ""

    def poll(self) -> int:
        """Counts a store whose calls hang as out, and tries one that is out again, although nobody
        calls it. Returns how often it was out and came back. Optional; 0 here. Never blocks."""
        return 0

    @property
    def losses(self) -> Losses:
        """What it did not do so far, where that is counted (see `breaker`)."""
        return Losses()


def tell(reason: object) -> None:
    """Say why values of the call under way fail, in plain words, on the thread that called the
    store: a `Status` says what became of a value, and not why. Only the first reason is kept, for
    whoever is `listening`."""
    heard = _heard.get()
    if heard is not None and not heard:
        text = str(reason) or type(reason).__name__
        heard.append(" ".join(text.split())[:_MOST_REASON].rstrip("."))


@contextmanager
def listening() -> Iterator[list[str]]:
    """The first reason that is told in the block, or none."""
    heard: list[str] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def step() -> None:
    """Say, on the thread that called the store or in a copy of its context, that bytes of the call
    under way have moved. Whoever is `watching` begins to wait anew."""
    for stepped in _watching.get():
        stepped()


@contextmanager
def watching(stepped: Callable[[], None]) -> Iterator[None]:
    """Calls `stepped`, on any thread, for each `step` of the calls in the block, and of what they
    leave behind when they are given up."""
    token = _watching.set((*_watching.get(), stepped))
    try:
        yield
    finally:
        _watching.reset(token)


def size_of(value: Value) -> int:
    return sum(buffer.nbytes for buffer in value)


def batches(items: Iterable[T], bytes_of: Callable[[T], int], most_bytes: int) -> Iterator[list[T]]:
    """The items in order, in runs of at most so many bytes, or of one item."""
    batch: list[T] = []
    size = 0
    for item in items:
        more = bytes_of(item)
        if batch and size + more > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def scatter(source: memoryview, value: Value) -> None:
    """Copy as many bytes as a value has into its buffers, one after the other."""
    for buffer in value:
        buffer.cast("B")[:] = source[: buffer.nbytes]
        source = source[buffer.nbytes :]


def gather(value: Value, target: memoryview) -> None:
    """Copy the buffers of a value, one after the other."""
    for buffer in value:
        target[: buffer.nbytes] = buffer.cast("B")
        target = target[buffer.nbytes :]
