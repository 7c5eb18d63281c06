"""Pages of SGLang's host pools in a store: what is there, reads, writes, and what became of each.

A pool has keys of its own context, and a shard: that of its rank, or one of all ranks where they
have the same pages. SGLang asks from several threads at a time. Imports nothing of SGLang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from hicache.storage.base import Status, Value
from hicache.storage.keys import Context, context_key, page_keys, shard
from hicache.storage.verified import Verified

from .pages import HostPages, Room, flat_value

_DIGEST = 64  # hexadecimal digits
_MOST_DELETES = 1024  # keys of one call
# Pools of which each rank has a part, also where the keys and values are the same on all.
_PER_RANK = {"mamba"}


class Rank(NamedTuple):
    """One rank of tensor and of pipeline parallelism. replicated: all ranks of a stage have the
    same keys and values, as with MLA."""

    rank: int = 0
    ranks: int = 1
    stage: int = 0
    stages: int = 1
    replicated: bool = False


class Place(NamedTuple):
    """Where the pages of a pool are in the store."""

    pages: HostPages
    context: Context
    shard: str

    def keys(self, names: Sequence[str]) -> list[str]:
        """The keys of pages that SGLang calls so: SHA-256 in hexadecimal."""
        return page_keys(
            self.context.digest, self.pages.name, self.shard, [_digest(name) for name in names]
        )


class Moved(NamedTuple):
    """One call that moved pages."""

    pages: int
    bytes: int
    seconds: float


@dataclass
class Moves:
    """What was moved. recent: since SGLang last asked."""

    pages: int = 0
    bytes: int = 0
    recent: list[Moved] = field(default_factory=list)


class Shelves:
    """The pools of one rank in a store. now: seconds of a clock that never goes back. context_of:
    the context of a pool's pages."""

    def __init__(
        self,
        store: Verified,
        rank: Rank,
        context_of: Callable[[Mapping[str, Any]], Context],
        now: Callable[[], float],
    ) -> None:
        self.store, self.rank = store, rank
        self._context_of, self._now = context_of, now
        self._places: dict[str, Place] = {}
        self._lock = threading.Lock()
        self.read, self.written = Moves(), Moves()
        self.failed_reads = 0  # pages that were asked for and did not come
        self.closed = False

    def register(self, name: str, pool: Any) -> None:
        """The pages of a pool may be asked for. Raises CallerError for one that has none."""
        pages = HostPages(name, pool)
        at = self.rank
        shared = at.replicated and name not in _PER_RANK and not pages.per_rank
        place = Place(pages, self._context_of(pages.form), shard(*at[:4], shared=shared))
        if at.rank == 0:
            text = memoryview(place.context.text.encode("ascii"))
            self.store.write([context_key(place.context.digest)], [(text,)])
        self._places[name] = place

    def knows(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str) -> Place:
        """Where the pages of a registered pool are."""
        return self._places[name]

    # -- what is there

    def there(self, name: str, names: Sequence[str]) -> list[bool]:
        """Whether each page is there; one of which the store does not say counts as not."""
        return [one is True for one in self.store.lookup(self._places[name].keys(names))]

    def prefix(self, name: str, names: Sequence[str]) -> int:
        """How many pages are there, from the first on."""
        found = self.there(name, names)
        return found.index(False) if False in found else len(found)

    # -- pages

    def get(self, name: str, names: Sequence[str], slots: Any) -> list[bool]:
        """Read pages into the slots of a host pool. Whether each is there; what the slots of
        another hold is not defined."""
        place = self._places[name]
        starts = place.pages.starts(len(names), slots)
        if starts is None:
            return [False] * len(names)
        return self._get(place, names, lambda at: place.pages.room(starts[at]), starts)

    def set(self, name: str, names: Sequence[str], slots: Any) -> list[bool]:
        """Write pages from the slots of a host pool. Whether each is there afterwards."""
        place = self._places[name]
        starts = place.pages.starts(len(names), slots)
        if starts is None:
            return [False] * len(names)
        return self._set(place, names, lambda at: place.pages.held(starts[at]))

    def get_flat(self, name: str, names: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        """Read pages into flat tensors."""
        return self._get(self._places[name], names, lambda at: Room(flat_value(pages[at]), None))

    def set_flat(self, name: str, names: Sequence[str], pages: Sequence[Any]) -> list[bool]:
        """Write pages from flat tensors."""
        return self._set(self._places[name], names, lambda at: flat_value(pages[at]))

    def _get(
        self,
        place: Place,
        names: Sequence[str],
        room_of: Callable[[int], Room],
        starts: Sequence[int] = (),
    ) -> list[bool]:
        """Stops after a call that did not read everything: SGLang takes what is before a gap."""
        keys, found = place.keys(names), list[bool]()
        for part in place.pages.parts(len(names)):
            rooms = [room_of(at) for at in part]
            arrived = self._read([keys[at] for at in part], [room.value for room in rooms])
            for at, room, ok in zip(part, rooms, arrived, strict=True):
                if ok and starts:
                    place.pages.arrived(starts[at], room)
            found += arrived
            if not all(arrived):
                break
        return found + [False] * (len(names) - len(found))

    def _set(
        self, place: Place, names: Sequence[str], value_of: Callable[[int], Value]
    ) -> list[bool]:
        """Stops after a call that did not write everything, as SGLang then does."""
        keys, found = place.keys(names), list[bool]()
        for part in place.pages.parts(len(names)):
            found += self._written([keys[at] for at in part], part, value_of)
            if not all(found):
                break
        return found + [False] * (len(names) - len(found))

    def _read(self, keys: Sequence[str], values: Sequence[Value]) -> list[bool]:
        began = self._now()
        found = [one is Status.DONE for one in self.store.read(keys, values)]
        with self._lock:
            self.failed_reads += found.count(False)
        self._count(self.read, found, values, began)
        return found

    def _written(
        self, keys: Sequence[str], numbers: range, value_of: Callable[[int], Value]
    ) -> list[bool]:
        """Write what is not there yet: a page never changes."""
        began = self._now()
        found = [one is True for one in self.store.lookup(keys)]
        new = [at for at, there in enumerate(found) if not there]
        if new:
            values = [value_of(numbers[at]) for at in new]
            done = self.store.write([keys[at] for at in new], values)
            for at, status in zip(new, done, strict=True):
                found[at] = status is Status.DONE
            self._count(self.written, [found[at] for at in new], values, began)
        return found

    def _count(
        self, moves: Moves, done: Sequence[bool], values: Sequence[Value], began: float
    ) -> None:
        moved = [value for value, ok in zip(values, done, strict=True) if ok]
        size = sum(part.nbytes for value in moved for part in value)
        with self._lock:
            moves.pages += len(moved)
            moves.bytes += size
            if moved:
                moves.recent.append(Moved(len(moved), size, self._now() - began))
                del moves.recent[:-1000]

    def take_recent(self) -> tuple[list[Moved], list[Moved]]:
        """The reads and the writes since the last call."""
        with self._lock:
            found = self.read.recent, self.written.recent
            self.read.recent, self.written.recent = [], []
        return found

    # -- the store

    def clear(self) -> int:
        """Delete what the store has of the pools of this rank. Returns how many pages. Raises
        OSError if the store cannot be asked."""
        gone = 0
        for place in self._places.values():
            prefix = f"{place.context.digest}/{place.pages.name}/{place.shard}/"
            for keys in _batches(one.key for one in self.store.entries(prefix)):
                gone += self.store.delete(keys).count(Status.DONE)
        return gone

    @property
    def figures(self) -> dict[str, int | float]:
        """Figures since the store was opened."""
        losses = self.store.losses
        return {
            "read_pages": self.read.pages,
            "read_bytes": self.read.bytes,
            "written_pages": self.written.pages,
            "written_bytes": self.written.bytes,
            "failed_reads": self.failed_reads,
            "corrupt": self.store.corrupt,
            "writes_refused": losses.writes_refused,
            "outages": losses.outages + losses.write_outages,
            "waited_s": losses.waited_s,
        }

    def close(self) -> None:
        """Idempotent."""
        if not self.closed:
            self.closed = True
            self.store.close()


def _digest(name: str) -> bytes:
    if len(name) == _DIGEST:
        try:
            return bytes.fromhex(name)
        except ValueError:
            pass
    return sha256(name.encode()).digest()


def _batches(keys: Iterator[str]) -> Iterator[list[str]]:
    waiting = list(keys)  # the store may be changed then
    for start in range(0, len(waiting), _MOST_DELETES):
        yield waiting[start : start + _MOST_DELETES]
