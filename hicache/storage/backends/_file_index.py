"""The index of the file backend: which slot holds which key, in SQLite.

A slot is free, reserved by one open store, or stored. A reserved slot has no key, so a value whose
writer was killed does not exist. Every change is one transaction that all processes on the folder
see whole or not at all. When room must be made, `_file_room` decides what goes.

Does not touch the bytes of values, but reserves and deletes segments through `Data`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import xxhash

from ..base import Entry
from . import _file_room as room
from ._file_data import Data

VERSION = 1
SLOT_STEP = 4096  # slots begin at multiples of it
_AT_ONCE = 500  # keys in one query
_MOST_TOUCHED = 4096
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"  # the store's own clock, for ages of entries
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (tick INTEGER NOT NULL);
INSERT INTO meta SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM meta);
CREATE TABLE IF NOT EXISTS segments (
  id INTEGER PRIMARY KEY AUTOINCREMENT, slot_bytes INTEGER NOT NULL, slots INTEGER NOT NULL,
  used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS slots (
  segment INTEGER NOT NULL, slot INTEGER NOT NULL, slot_bytes INTEGER NOT NULL, key TEXT,
  family INTEGER, length INTEGER, generation INTEGER, used INTEGER, used_at INTEGER, owner INTEGER,
  PRIMARY KEY (segment, slot)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_key ON slots (key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_use ON slots (slot_bytes, used) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_family ON slots (family) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS reserved ON slots (owner) WHERE owner IS NOT NULL;
CREATE INDEX IF NOT EXISTS free ON slots (slot_bytes) WHERE key IS NULL AND owner IS NULL;
PRAGMA user_version = {VERSION};
COMMIT;
"""


class Slot(NamedTuple):
    """A place for a value."""

    segment: int
    number: int
    size_bytes: int

    @property
    def start(self) -> int:
        return self.number * self.size_bytes


class Row(NamedTuple):
    """A stored value. generation: no two values ever have the same."""

    slot: Slot
    length: int
    generation: int


def family_of(key: str) -> int:
    """A number that all values of one page share, whatever pool and shard they are of: they are
    useless without each other, so they go together."""
    parts = key.split("/")
    number = xxhash.xxh3_64_intdigest(f"{parts[0]}/{parts[-1]}".encode())
    return number - (1 << 63)  # SQLite's integers have a sign


class Index:
    """The index of one open store. base: a connection that may be used from any thread. alive:
    whether the store with this owner's number is still open.

    Every call raises sqlite3.Error and OSError for what the system refuses, and has then changed
    nothing."""

    def __init__(
        self,
        base: sqlite3.Connection,
        data: Data,
        size_bytes: int,
        owner: int,
        alive: Callable[[int], bool],
    ) -> None:
        self._base = base
        self._data = data
        self._size_bytes = size_bytes
        self._owner = owner
        self._alive = alive
        self._lock = threading.RLock()
        self._changes = 0
        self._touched: dict[Slot, int] = {}  # what was used, the last use last: its generation
        self.evicted = 0

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: no other process changes the index or the segments meanwhile."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            self._gone: list[int] = []
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise
            self._changes += 1
            for segment in self._gone:  # only now does nobody look there
                self._data.delete(segment)

    def find(self, keys: Sequence[str]) -> tuple[dict[str, Row], tuple[int, int]]:
        """The rows of the keys that are stored, and a stamp for `moved`."""
        rows: dict[str, Row] = {}
        with self._lock:
            stamp = self._stamp()
            for first in range(0, len(keys), _AT_ONCE):
                some = keys[first : first + _AT_ONCE]
                marks = ",".join("?" * len(some))
                for key, segment, slot, size, length, generation in self._base.execute(
                    "SELECT key, segment, slot, slot_bytes, length, generation FROM slots"
                    f" WHERE key IN ({marks})",
                    some,
                ):
                    rows[key] = Row(Slot(segment, slot, size), length, generation)
        return rows, stamp

    def moved(self, rows: dict[str, Row], stamp: tuple[int, int]) -> set[str]:
        """The keys whose slots may hold something else since `find`."""
        with self._lock:
            if self._stamp() == stamp:
                return set()
        now, _ = self.find(list(rows))
        return {key for key, row in rows.items() if now.get(key) != row}

    def touch(self, rows: Sequence[Row]) -> None:
        """Note that the values were used, the last of them last."""
        with self._lock:
            for row in rows:
                self._touched.pop(row.slot, None)
                self._touched[row.slot] = row.generation
            full = len(self._touched) > _MOST_TOUCHED
        if full:
            with self.change():
                self._store_touched()

    def reserve(self, sizes: Sequence[int], keys: Sequence[str]) -> list[Slot | None]:
        """A slot for each value, of at least that many bytes; None where there is no room.

        keys: what the slots are for. The text of a context is used whenever a page of it is."""
        needs = [-(-size // SLOT_STEP) * SLOT_STEP or SLOT_STEP for size in sizes]
        texts, _ = self.find(
            [f"{context}/context" for context in {key.partition("/")[0] for key in keys}]
        )
        self.touch(list(texts.values()))
        with self.change() as base:
            self._store_touched()
            taken: dict[int, list[Slot]] = {}
            for need in set(needs):
                count = needs.count(need)
                free = self._free(need, count)
                while len(free) < count and self._make_room(need, count - len(free)):
                    free = self._free(need, count)
                taken[need] = free[::-1]
                base.executemany(
                    "UPDATE slots SET owner = ? WHERE segment = ? AND slot = ?",
                    [(self._owner, slot.segment, slot.number) for slot in free],
                )
            return [taken[need].pop() if taken[need] else None for need in needs]

    def publish(self, written: Sequence[tuple[Slot, str, int]]) -> list[bool]:
        """Let each slot, with a value of this length, be what the key means. False for a slot that
        is no longer reserved for this store."""
        with self.change() as base:
            there = set(self.find([key for _, key, _ in written])[0])
            tick = self._ticks(len(written))
            kept = []
            for number, (slot, key, length) in enumerate(written, tick):
                if key in there:
                    room.free(base, "key = ?", (key,))
                there.add(key)
                done = base.execute(
                    "UPDATE slots SET key = ?, family = ?, length = ?, generation = ?, used = ?,"
                    f" used_at = {_NOW}, owner = NULL WHERE segment = ? AND slot = ? AND owner = ?",
                    (key, family_of(key), length, number, number, *slot[:2], self._owner),
                )
                kept.append(done.rowcount == 1)
            room.use_segments(base, [slot.segment for slot, _, _ in written], tick)
        return kept

    def release(self, slots: Sequence[Slot]) -> None:
        """Give reserved slots back."""
        with self.change() as base:
            base.executemany(
                "UPDATE slots SET owner = NULL WHERE segment = ? AND slot = ? AND owner = ?",
                [(slot.segment, slot.number, self._owner) for slot in slots],
            )

    def delete(self, keys: Sequence[str]) -> list[bool]:
        """Whether each key was stored. Segments without values go."""
        rows, _ = self.find(keys)
        if not rows:
            return [False] * len(keys)
        with self.change() as base:
            found = [bool(room.free(base, "key = ?", (key,))) for key in keys]
            for segment in {row.slot.segment for row in rows.values()}:
                if room.is_empty(base, segment):
                    self._drop(segment)
        return found

    def lost(self, segment: int) -> None:
        """Forget a segment whose file is gone."""
        with self.change():
            self._drop(segment)

    def entries(self, prefix: str) -> Iterator[Entry]:
        last = ""
        while True:
            with self._lock:
                rows = self._base.execute(
                    "SELECT key, length, used_at FROM slots WHERE key > ? AND key >= ?"
                    " ORDER BY key LIMIT ?",
                    (last, prefix, _AT_ONCE),
                ).fetchall()
            for key, length, used_at in rows:
                if not key.startswith(prefix):
                    return
                yield Entry(key, length, float(used_at))
            if not rows:
                return
            last = rows[-1][0]

    def stats(self) -> dict[str, int]:
        with self._lock:
            values, stored = self._base.execute(
                "SELECT COUNT(*), COALESCE(SUM(length), 0) FROM slots WHERE key IS NOT NULL"
            ).fetchone()
            return {
                "values": values,
                "bytes": stored,
                "disk_bytes": room.reserved_bytes(self._base),
                "evicted": self.evicted,
            }

    def clean(self) -> None:
        """Undo what killed processes left, and drop the coldest segments while there are more bytes
        than the store may use."""
        with self.change() as base:
            room.release_dead(base, self._alive)
            known = {row[0] for row in base.execute("SELECT id FROM segments")}
            there = set(self._data.segments())
            self._gone += there - known
            for segment in known - there:
                self._drop(segment)
            while self._size_bytes and room.reserved_bytes(base) > self._size_bytes:
                coldest = room.coldest_segment(base)
                if coldest is None:
                    return
                self._drop(coldest.segment)

    def close(self) -> None:
        with self._lock:
            try:
                if self._touched:
                    with self.change():
                        self._store_touched()
            finally:
                self._base.close()

    def _free(self, size: int, count: int) -> list[Slot]:
        rows = self._base.execute(
            "SELECT segment, slot FROM slots WHERE slot_bytes = ? AND key IS NULL AND"
            " owner IS NULL LIMIT ?",
            (size, count),
        )
        return [Slot(segment, slot, size) for segment, slot in rows]

    def _make_room(self, need: int, count: int) -> bool:
        """Free or add slots of this size. False: nothing more can go."""
        base = self._base
        if self._size_bytes and need > self._size_bytes:
            return False
        grown = room.grow(base, self._data, need, self._size_bytes)
        if grown is room.Growth.ADDED or room.release_dead(base, self._alive):
            return True
        coldest, used = room.coldest_segment(base, other_than=need), room.oldest(base, need)
        if coldest is not None and (used is None or coldest.used < used):
            self._drop(coldest.segment)
            if grown is room.Growth.DISK:
                self._data.delete(coldest.segment)  # the disk has to have the room at once
            return True
        freed = room.evict(base, need, count)
        self.evicted += freed
        return freed > 0

    def _drop(self, segment: int) -> None:
        self.evicted += room.drop(self._base, segment)
        self._gone.append(segment)

    def _store_touched(self) -> None:
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        tick = self._ticks(len(touched))
        self._base.executemany(
            f"UPDATE slots SET used = ?, used_at = {_NOW}"
            " WHERE segment = ? AND slot = ? AND generation = ?",
            [
                (number, slot.segment, slot.number, generation)
                for number, (slot, generation) in enumerate(touched.items(), tick)
            ],
        )
        room.use_segments(self._base, [slot.segment for slot in touched], tick)

    def _ticks(self, count: int) -> int:
        """The first of as many new numbers, each higher than all before."""
        row = self._base.execute("UPDATE meta SET tick = tick + ? RETURNING tick", (count,))
        last: int = row.fetchone()[0]
        return last - count + 1

    def _stamp(self) -> tuple[int, int]:
        """Another one when anything may have changed, here or in another process."""
        version: int = self._base.execute("PRAGMA data_version").fetchone()[0]
        return version, self._changes


def create(base: sqlite3.Connection) -> None:
    """Make the tables, if they are not there."""
    base.executescript(_SCHEMA)
