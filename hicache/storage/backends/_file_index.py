"""The index of the file backend: which slot holds which key, in SQLite.

A slot is free, reserved by one open store, or stored. A reserved slot has no key, so a value whose
writer was killed does not exist. Every change is one transaction that all processes on the folder
see whole or not at all. When room must be made, `_file_room` decides what goes.

Does not touch the bytes of values, but reserves and deletes segments through `Data`. Its tables:

meta      one row: the number that was given last, to a store or a use of a value
segments  the files of slots, and when a value of each was last used
slots     free (no key, no owner), reserved by an open store (an owner), or stored (a key)
totals    what became of values since the folder was made: evicted, lost
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import xxhash

from ..base import Entry, Status, tell
from . import _file_room as room
from ._file_changes import REFUSED, Changes, failed, status_of
from ._file_data import Data, Reserve

VERSION = 1
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"  # the store's own clock, for ages of entries
SLOT_STEP = 4096  # slots begin at multiples of it
_AT_ONCE = 500  # keys in one query
_MOST_TOUCHED = 4096
_SHORT = {
    room.Growth.LIMIT: "the store has reached its size",
    room.Growth.DISK: "the disk is full",
}
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
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
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


def create(base: sqlite3.Connection) -> None:
    """Make the tables, if they are not there."""
    base.executescript(_SCHEMA)


def family_of(key: str) -> int:
    """A number that all values of one page share, whatever pool and shard they are of: they are
    useless without each other, so they go together."""
    parts = key.split("/")
    number = xxhash.xxh3_64_intdigest(f"{parts[0]}/{parts[-1]}".encode())
    return number - (1 << 63)  # SQLite's integers have a sign


class Index:
    """The index of one open store. base: a connection that may be used from any thread. alive:
    whether the store with this owner's number is still open. reserve: where a disk that is full
    still has room for the index; None: it has none.

    A call raises sqlite3.Error and OSError for what the system refuses, and has then changed
    nothing. Where the disk has no room for the change of a whole batch, parts of it are tried."""

    def __init__(
        self,
        base: sqlite3.Connection,
        data: Data,
        size_bytes: int,
        owner: int,
        alive: Callable[[int], bool],
        reserve: Reserve | None = None,
    ) -> None:
        self._base = base
        self._changes = Changes(base, data, reserve, self._file_uses)
        self._lock = self._changes.lock
        self._data = data
        self._size_bytes = size_bytes
        self._owner = owner
        self._alive = alive
        self._touched: dict[Slot, int] = {}  # what was used, the last use last: its generation
        self._unreleased: list[Slot] = []

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
            if len(self._touched) <= _MOST_TOUCHED:
                return
            with suppress(*REFUSED), self._settling():
                return
            for slot in list(self._touched)[:-_MOST_TOUCHED]:
                del self._touched[slot]

    def reserve(self, sizes: Sequence[int], keys: Sequence[str]) -> list[Slot | Status]:
        """A slot for each value, of at least that many bytes, or what becomes of it without one.

        keys: what the slots are for. The text of a context is used whenever a page of it is."""
        needs = [-(-size // SLOT_STEP) * SLOT_STEP or SLOT_STEP for size in sizes]
        texts, _ = self.find(
            [f"{context}/context" for context in {key.partition("/")[0] for key in keys}]
        )
        self.touch(list(texts.values()))
        return self._changes.in_parts(self._reserve, needs, status_of)

    def publish(self, written: Sequence[tuple[Slot, str, int]]) -> list[Status]:
        """Let each slot, with a value of this length, be what the key means. `FAILED` for a slot
        that is no longer reserved for this store, or whose segment has no file any more."""
        return self._changes.in_parts(self._publish, written, status_of)

    def release(self, slots: Sequence[Slot]) -> None:
        """Give reserved slots back, now or with the next change."""
        with self._lock:
            self._unreleased += slots
            with suppress(*REFUSED), self._settling():
                pass

    def delete(self, keys: Sequence[str]) -> list[Status]:
        """Delete each key. Segments without values go."""
        if not self.find(keys)[0]:
            return [Status.MISSING] * len(keys)
        return self._changes.in_parts(self._delete, keys, failed)

    def lost(self, segment: int) -> None:
        """Forget a segment whose file is gone, now or when it is asked for again."""
        with suppress(*REFUSED), self._changes.change():
            if not self._data.has(segment):
                self._changes.drop(segment, "lost")

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
            totals = dict(self._base.execute("SELECT name, value FROM totals"))
            return {
                "values": values,
                "bytes": stored,
                "disk_bytes": room.reserved_bytes(self._base),
                "evicted": totals.get("evicted", 0),
                "lost": totals.get("lost", 0),
            }

    def clean(self) -> None:
        """Undo what killed processes left, and drop the coldest segments while there are more bytes
        than the store may use."""
        with self._changes.change() as base:
            room.release_dead(base, self._alive)
            known = {row[0] for row in base.execute("SELECT id FROM segments")}
            there = set(self._data.segments())
            for segment in there - known:  # now: its number may be given again
                with suppress(OSError):
                    self._data.delete(segment)
            for segment in known - there:
                self._changes.drop(segment, "lost")
            while self._size_bytes and room.reserved_bytes(base) > self._size_bytes:
                coldest = room.coldest_segment(base)
                if coldest is None:
                    return
                self._changes.drop(coldest.number)

    def close(self) -> None:
        with self._lock:
            try:
                if self._touched or self._unreleased:
                    with self._settling():
                        pass
            finally:
                self._base.close()

    def _free(self, size: int, count: int) -> list[Slot]:
        """Free slots, at most so many, in segments that have a file."""
        rows = self._base.execute(
            "SELECT segment, slot FROM slots WHERE slot_bytes = ? AND key IS NULL AND"
            " owner IS NULL LIMIT ?",
            (size, count),
        ).fetchall()
        lost = {one for one in {segment for segment, _ in rows} if not self._data.has(one)}
        for segment in lost:
            self._changes.drop(segment, "lost")
        if lost:
            return self._free(size, count)
        return [Slot(segment, slot, size) for segment, slot in rows]

    def _reserve(self, needs: Sequence[int]) -> list[Slot | Status]:
        """Where a segment has to go for its room on the disk, its end comes first."""
        given_up = 0  # bytes
        while True:
            with self._settling() as base:
                found: dict[int, list[Slot]] = {}
                ended = 0
                for need in set(needs):
                    count = needs.count(need)
                    free = self._free(need, count)
                    while len(free) < count and self._make_room(need, count - len(free), given_up):
                        free = self._free(need, count)
                    if given_up < need * (count - len(free)):
                        ended += self._give_up_for(need)
                    found[need] = free[::-1]
                    self._own(base, free, self._owner)
                if not ended:
                    return [found[need].pop() if found[need] else Status.FULL for need in needs]
                for free in found.values():
                    self._own(base, free, None)
            given_up += ended

    def _own(self, base: sqlite3.Connection, slots: Sequence[Slot], owner: int | None) -> None:
        base.executemany(
            "UPDATE slots SET owner = ? WHERE segment = ? AND slot = ? AND key IS NULL",
            [(owner, *slot[:2]) for slot in slots],
        )

    def _publish(self, written: Sequence[tuple[Slot, str, int]]) -> list[Status]:
        with self._changes.change() as base:
            there = set(self.find([key for _, key, _ in written])[0])
            mine = set(
                base.execute("SELECT segment, slot FROM slots WHERE owner = ?", (self._owner,))
            )
            whole = {one for one in {slot.segment for slot, _, _ in written} if self._data.has(one)}
            kept = [slot[:2] in mine and slot.segment in whole for slot, _, _ in written]
            good = [one for one, keep in zip(written, kept, strict=True) if keep]
            tick = self._ticks(len(good))
            for number, (slot, key, length) in enumerate(good, tick):
                if key in there:
                    room.free(base, "key = ?", (key,))
                there.add(key)
                base.execute(
                    "UPDATE slots SET key = ?, family = ?, length = ?, generation = ?, used = ?,"
                    f" used_at = {_NOW}, owner = NULL WHERE segment = ? AND slot = ?",
                    (key, family_of(key), length, number, number, *slot[:2]),
                )
            room.use_segments(base, [slot.segment for slot, _, _ in good], tick)
            for segment in {slot.segment for slot, _, _ in written} - whole:
                self._changes.drop(segment, "lost")
        return [Status.DONE if keep else Status.FAILED for keep in kept]

    def _delete(self, keys: Sequence[str]) -> list[Status]:
        rows, _ = self.find(keys)
        with self._settling() as base:
            found = [room.free(base, "key = ?", (key,)) for key in keys]
            for segment in {row.slot.segment for row in rows.values()}:
                if room.is_empty(base, segment):
                    self._changes.drop(segment)
        return [Status.DONE if one else Status.MISSING for one in found]

    def _make_room(self, need: int, count: int, given_up: int) -> bool:
        """Free or add slots of this size. False: nothing more can go. given_up: bytes of the disk
        that a segment left to this."""
        base = self._base
        if not self._fits(need):
            tell(f"a value of {need:,} bytes does not fit into the store")
            return False
        grown = room.grow(base, self._data, need, self._size_bytes, given_up)
        if grown is room.Growth.ADDED or room.release_dead(base, self._alive):
            return True
        other, own = room.coldest_segment(base, other_than=need), room.coldest_page(base, need)
        colder = other is not None and (own is None or other.used <= own.used)
        if other is not None and colder and grown is room.Growth.LIMIT:
            self._changes.drop(other.number)
            return True
        if colder:
            return False  # see `_give_up_for`
        freed = room.evict(base, need, count, other.used if other else None)
        room.tally(base, "evicted", freed)
        if not freed:
            tell(f"{_SHORT[grown]}, and nothing that is stored may go")
        return freed > 0

    def _fits(self, need: int) -> bool:
        """Whether a value may be stored at all, whatever has to go for it."""
        if self._size_bytes:
            return need <= self._size_bytes
        return need <= room.reserved_bytes(self._base) + self._data.room()

    def _give_up_for(self, need: int) -> int:
        """Drop the segment whose values are all colder than those in slots of this size; its bytes,
        which the disk has when the transaction ends."""
        base = self._base
        other, own = room.coldest_segment(base, other_than=need), room.coldest_page(base, need)
        if other is None or (own and own.used < other.used) or not self._fits(need):
            return 0
        size = room.reserved_bytes(base, other.number)
        self._changes.drop(other.number)
        return size

    @contextmanager
    def _settling(self) -> Iterator[sqlite3.Connection]:
        """A change that also files what waits for one. It waits on if that fails."""
        with self._lock:
            with self._changes.change() as base:
                base.executemany(
                    "UPDATE slots SET owner = NULL WHERE segment = ? AND slot = ? AND owner = ?",
                    [(*slot[:2], self._owner) for slot in self._unreleased],
                )
                self._file_uses(base)
                yield base
            self._unreleased.clear()
            self._touched.clear()

    def _file_uses(self, base: sqlite3.Connection) -> None:
        if not self._touched:
            return
        tick = self._ticks(len(self._touched))
        base.executemany(
            f"UPDATE slots SET used = ?, used_at = {_NOW}"
            " WHERE segment = ? AND slot = ? AND generation = ?",
            [
                (number, slot.segment, slot.number, generation)
                for number, (slot, generation) in enumerate(self._touched.items(), tick)
            ],
        )
        room.use_segments(base, [slot.segment for slot in self._touched], tick)

    def _ticks(self, count: int) -> int:
        """The first of as many new numbers, each higher than all before."""
        row = self._base.execute("UPDATE meta SET tick = tick + ? RETURNING tick", (count,))
        last: int = row.fetchone()[0]
        return last - count + 1

    def _stamp(self) -> tuple[int, int]:
        """Another one when anything may have changed, here or in another process."""
        version: int = self._base.execute("PRAGMA data_version").fetchone()[0]
        return version, self._changes.count
