"""The index of a store, in SQLite: which blocks of its file hold which value.

The file is cut into blocks of 4096 bytes. A run of blocks has a value, is free, or is a hole, for
which the disk keeps no room. A value without a key is reserved by an open store: it does not exist
for readers, so a value whose writer was killed does not exist. Every change is one transaction,
which all processes see whole or not at all. The values of a page go together, the page that was
used least recently first; uses are filed with the next change.

If the disk has no room for a change, four things make some, one after the other: SQLite's log
begins anew, the reserve is given up, free blocks become holes, and pages are evicted.
"""

import ctypes
import errno
import fcntl
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import xxhash

from .base import Entry, Status, Value, step, tell

BLOCK = 4096  # bytes
FREE, HOLE = 0, -1  # in place of a value's number
_FIRST_BLOCKS, _MORE_BLOCKS = 32, 1 << 14  # the file grows by as much as it has, between these
_OF_VALUES = 0.8  # of the disk's room for values, the rest for the index
_CHANGED = 32  # values of one change, so that the reserve has room for it
_MOST_TOUCHED = 4096
_MOST_LOG, _MOST_RESERVE, _LEAST_RESERVE = 16 << 20, 1 << 20, 64 << 10  # bytes
_PART = 16  # of the disk, 1 in so many, is for the log and the reserve
_MOST_BYTES, _MOST_BUFFERS = 2 << 20, 1024  # of one call; IOV_MAX of Linux
_PUNCH = 3  # FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (OSError, sqlite3.Error)
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"  # the store's own clock, for ages of entries
SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (tick INTEGER, evicted INTEGER, lost INTEGER);
INSERT INTO meta SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM meta);
CREATE TABLE IF NOT EXISTS runs (start INTEGER PRIMARY KEY, blocks INTEGER, value INTEGER);
CREATE INDEX IF NOT EXISTS by_value ON runs (value, blocks);
CREATE TABLE IF NOT EXISTS stored (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, page INTEGER, length INTEGER, owner INTEGER
);
CREATE INDEX IF NOT EXISTS by_page ON stored (page) WHERE page IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_owner ON stored (owner) WHERE owner IS NOT NULL;
CREATE TABLE IF NOT EXISTS pages (id INTEGER PRIMARY KEY, used INTEGER, used_at INTEGER);
CREATE INDEX IF NOT EXISTS by_use ON pages (used);
PRAGMA user_version = {version};
COMMIT;
"""
_FIND = (
    "SELECT stored.key, id, length, start, blocks FROM stored JOIN runs ON runs.value = id WHERE"
    " stored.key IN (SELECT asked.value FROM json_each(?) AS asked) ORDER BY start"
)
_THERE = "SELECT id FROM stored WHERE id IN (SELECT value FROM json_each(?))"

Item = TypeVar("Item")
Done = TypeVar("Done")


class Run(NamedTuple):
    """Blocks of the file."""

    start: int
    blocks: int


class Row(NamedTuple):
    """A value's bytes and its runs in their order. No two values ever have the same number."""

    number: int
    length: int
    runs: tuple[Run, ...]


Jobs = Sequence[tuple[Row, Value]]


def page_of(key: str) -> int:
    """A number that all values of one page share, whatever pool and shard they are of."""
    parts = key.split("/")
    number = xxhash.xxh3_64_intdigest(f"{parts[0]}/{parts[-1]}".encode())
    return number - (1 << 63)  # SQLite's integers have a sign


def is_full(error: BaseException) -> bool:
    """Whether a change failed because there was no room for it."""
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def refused(error: Exception) -> Status:
    """What becomes of a value for which the system refuses a call. Tells why."""
    tell(error)
    return Status.FULL if is_full(error) else Status.FAILED


def allocate(path: Path, size_bytes: int) -> None:
    """Make a file with all its blocks, or none."""
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError:
            path.unlink(missing_ok=True)
            raise


class Data:
    """The file of the values. first: the run of blocks that a new one is, and what it is."""

    first = (1 << 40, HOLE)

    def __init__(self, path: Path) -> None:
        self.path, self._inode = path, 0

    def open(self) -> bool:
        """Make it if it is not there. Whether it is new."""
        with open(self.path, "ab") as file:
            self._inode = os.fstat(file.fileno()).st_ino
            if file.tell():
                return False
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the name survives a power failure
        finally:
            os.close(folder)
        return True

    def is_there(self) -> bool:
        """Whether it is the file that was opened."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_ino == self._inode
        return False

    def allocate(self, run: Run) -> None:
        """Take room from the disk."""
        with open(self.path, "rb+") as file:
            os.posix_fallocate(file.fileno(), run.start * BLOCK, run.blocks * BLOCK)

    def punch(self, run: Run) -> bool:
        """Give room back to the disk. False: the file system cannot."""
        with open(self.path, "rb+") as file:
            most = file.seek(0, os.SEEK_END) // BLOCK + _MORE_BLOCKS  # ext4 refuses 1 << 40
            there = run._replace(blocks=min(run.blocks, most))
            start, size = (ctypes.c_int64(blocks * BLOCK) for blocks in there)
            return not _LIBC.fallocate(file.fileno(), _PUNCH, start, size)

    def move(
        self, jobs: Jobs, reading: bool, durable: bool, late: Callable[[], None]
    ) -> list[Status] | None:
        """Read or write; what became of each value. durable: what was written survives a power
        failure. None: it goes on for too long, and `late` is called at its end."""
        file = os.open(self.path, (os.O_RDONLY if reading else os.O_WRONLY) | os.O_CLOEXEC)
        try:
            moves = [move(file, row, value, reading) for row, value in jobs]
            if durable:
                os.fdatasync(file)
        finally:
            os.close(file)
        return moves

    def close(self) -> None:
        """Nothing is kept open."""


def move(file: int, row: Row, value: Value, reading: bool) -> Status:
    """Read or write a value, a few bytes at a time, so that a slow disk shows progress. `CORRUPT`:
    the file ends before."""
    runs = [(start * BLOCK, blocks * BLOCK) for start, blocks in row.runs]
    call = os.preadv if reading else os.pwritev
    small = len(runs) == 1 and row.length <= _MOST_BYTES and len(value) <= _MOST_BUFFERS
    try:
        if small and call(file, value, runs[0][0]) == row.length:
            step()
            return Status.DONE
        at = length = 0
        for buffer in value:
            left = buffer.cast("B")
            while left:
                if not length:
                    at, length = runs.pop(0)
                done = call(file, [left[: min(length, _MOST_BYTES)]], at)
                if not done:
                    return Status.CORRUPT
                step()
                left, at, length = left[done:], at + done, length - done
    except OSError as error:
        return refused(error)
    return Status.DONE


class Reserve:
    """Room on the disk for the index when others have filled it: some blocks in a file, which is
    deleted when the index has no room, and made again when the disk has. Also the lock of the
    folder that all stores on it share."""

    def __init__(self, folder: Path) -> None:
        disk = os.statvfs(folder)
        part = disk.f_blocks * disk.f_frsize // _PART or _MOST_LOG
        self.log_bytes = max(_LEAST_RESERVE, min(_MOST_LOG, part))
        self._bytes = max(_LEAST_RESERVE, min(_MOST_RESERVE, part))
        self._folder, self._path = folder, folder / "reserve"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No other store is opened, or uses the reserve. Afterwards it is made again, if it can."""
        with open(self._folder / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                with suppress(OSError):
                    if not self._path.exists() or self._path.stat().st_size < self._bytes:
                        allocate(self._path, self._bytes)

    def free(self) -> int:
        """Free bytes of the disk. A quota may allow less."""
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize if disk.f_blocks else sys.maxsize

    def spare(self) -> int:
        """Those that the index can spare."""
        return int(max(0, self.free() - self._bytes - self.log_bytes) * _OF_VALUES)

    def give(self) -> bool:
        """Let the index have the blocks. False: they are gone."""
        there = self._path.exists()
        self._path.unlink(missing_ok=True)
        return there

    def lacks(self, error: BaseException) -> bool:
        """Whether the index failed because the disk has no room. SQLite may say no more than that
        it failed."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        no_room = code == sqlite3.SQLITE_IOERR and self.free() < _LEAST_RESERVE
        return no_room or is_full(error)


class Index:
    """The index of one open store. base: a connection that may be used from any thread. size_bytes:
    the most of the file; 0: none. owner: the store's number. alive: whether the store with a number
    is open. reserve: None if the folder is only read.

    A call raises sqlite3.Error and OSError for what the system refuses, and has then changed
    nothing."""

    def __init__(
        self,
        base: sqlite3.Connection,
        data: Data,
        size_bytes: int,
        owner: int,
        alive: Callable[[int], bool],
        reserve: Reserve | None = None,
    ) -> None:
        self._base, self._data, self._reserve = base, data, reserve
        self._most = size_bytes // BLOCK if size_bytes else data.first[0]
        self._owner, self._alive = owner, alive
        self._lock = threading.RLock()
        self._touched: dict[int, None] = {}  # pages that were used, the last one last
        self._unreleased: set[int] = set()  # values

    # -- what a store asks

    def find(self, keys: Iterable[str]) -> dict[str, Row]:
        """The rows of the keys that are stored."""
        rows: dict[str, Row] = {}
        with self._lock:
            for key, number, length, *run in self._base.execute(_FIND, (json.dumps(list(keys)),)):
                before = rows[key].runs if key in rows else ()
                rows[key] = Row(number, length, (*before, Run(*run)))
        return rows

    def moved(self, rows: dict[str, Row]) -> set[str]:
        """The keys whose blocks may hold something else since `find`: their values are gone."""
        numbers = json.dumps([row.number for row in rows.values()])
        with self._lock:
            there = {number for (number,) in self._base.execute(_THERE, (numbers,))}
        return {key for key, row in rows.items() if row.number not in there}

    def touch(self, keys: Sequence[str]) -> None:
        """Note that the pages of these values were used, the last of them last."""
        with self._lock:
            for page in map(page_of, keys):
                self._touched.pop(page, None)
                self._touched[page] = None
            if len(self._touched) > _MOST_TOUCHED:
                self._settle()
                self._touched.clear()  # also where they could not be filed

    def reserve(self, sizes: Sequence[int], keys: Sequence[str]) -> list[Row | Status]:
        """Blocks for each value, or what becomes of it without. The text of a context is used
        whenever a page of it is written."""
        self.touch([f"{context}/context" for context in {key.partition("/")[0] for key in keys}])
        return self._in_parts(self._reserve_some, sizes)

    def publish(self, written: Sequence[tuple[Row, str]]) -> list[Status]:
        """Let each value be what the key means. `FAILED` for one that is no longer reserved for
        this store, or whose file is gone."""
        return self._in_parts(self._publish_some, written)

    def release(self, rows: Sequence[Row]) -> None:
        """Give reserved blocks back, now or with the next change."""
        if rows:
            with self._lock:
                self._unreleased.update(row.number for row in rows)
                self._settle()

    def delete(self, keys: Sequence[str]) -> list[Status]:
        """Delete each key. The disk gets the room."""
        done = self._in_parts(self._delete_some, keys)
        with suppress(*REFUSED):
            self._give_back()
        return done

    def entries(self, prefix: str) -> Iterator[Entry]:
        with self._lock:
            rows = self._base.execute(
                "SELECT key, length, CAST(used_at AS REAL) FROM stored JOIN pages"
                " ON pages.id = page WHERE key >= ?1 AND SUBSTR(key, 1, LENGTH(?1)) = ?1",
                (prefix,),
            ).fetchall()
        return map(Entry._make, rows)

    def stats(self) -> dict[str, int | float | str]:
        """used_bytes: of blocks that are not free."""
        with self._lock:
            values, stored = self._row(
                "SELECT COUNT(*), COALESCE(SUM(length), 0) FROM stored WHERE key IS NOT NULL"
            )
            evicted, lost = self._row("SELECT evicted, lost FROM meta")
            disk_bytes, free_bytes = self._blocks() * BLOCK, self._free_blocks() * BLOCK
        return {
            "values": values,
            "bytes": stored,
            "evicted": evicted,
            "lost": lost,
            "disk_bytes": disk_bytes,
            "used_bytes": disk_bytes - free_bytes,
        }

    def clean(self) -> None:
        """Undo what killed processes left, forget what is lost with its file, and evict while
        there are more bytes than the store may use."""
        with self._changing() as base:
            if self._data.open() or not self._row("SELECT 1 FROM runs"):
                base.execute("UPDATE meta SET lost = lost + (SELECT COUNT(key) FROM stored)")
                for table in ("runs", "stored", "pages"):
                    base.execute(f"DELETE FROM {table}")
                base.execute("INSERT INTO runs VALUES (0, ?, ?)", self._data.first)
            self._release_dead()
            while self._blocks() - self._free_blocks() > self._most and self._evict_coldest():
                pass
        self._give_back()

    def close(self) -> None:
        with self._lock:
            if self._touched or self._unreleased:
                self._settle()
            self._base.close()

    # -- changes

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: nobody else changes the index meanwhile, or the room of the file."""
        base = self._base
        with self._lock:
            base.execute("BEGIN IMMEDIATE")
            try:
                yield base
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:
                    base.execute("ROLLBACK")
                raise

    def _settle(self) -> None:
        """File uses, and free blocks that were released, now or with the next reservation."""
        with suppress(*REFUSED):
            self._reserve_some(())

    def _in_parts(
        self, change: Callable[[Sequence[Item]], list[Done]], items: Sequence[Item]
    ) -> list[Done | Status]:
        """Make a change for all of them, some at a time; what became of each. What is left when it
        is refused is refused, too."""
        done: list[Done | Status] = []
        for first in range(0, len(items), _CHANGED):
            try:
                done += self._insist(partial(change, items[first : first + _CHANGED]))
            except REFUSED as error:
                return done + [refused(error)] * (len(items) - first)
        return done

    def _insist(self, change: Callable[[], Done]) -> Done:
        """Make a change. Where the disk has no room for it, find some and try again."""
        reserve = self._reserve
        with self._lock:
            try:
                return change()
            except REFUSED as error:
                if reserve is None or not reserve.lacks(error):
                    raise
                refusal = error
            with reserve.locked():
                for finds_room in (self._restart_log, reserve.give, self._give_back, self._shrink):
                    try:
                        if finds_room():
                            return change()
                    except REFUSED as error:
                        refusal = error
        raise refusal

    def _restart_log(self) -> bool:
        """File what SQLite has logged, so that the room of the log is used again."""
        with suppress(sqlite3.Error):
            self._base.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        return True

    def _give_back(self) -> bool:
        """Make holes of the free blocks. Whether the disk has got room."""
        if self._data.first[1] != HOLE:
            return False
        with self._changing():
            free = self._runs(FREE)
            for run in free:
                self._join(run, HOLE)
        with self._changing():  # nobody takes them meanwhile
            return all(self._data.punch(run) for run in self._runs(HOLE)) and bool(free)

    def _shrink(self) -> bool:
        """Evict some pages, so that the index has their room."""
        with self._changing():
            while self._free_blocks() * BLOCK < 2 * _LEAST_RESERVE and self._evict_coldest():
                pass
        return self._give_back()

    def _reserve_some(self, sizes: Sequence[int]) -> list[Row | Status]:
        rows: list[Row | Status] = []
        with self._changing():
            self._free([*self._mine() & self._unreleased] if self._unreleased else ())
            uses = list(enumerate(self._touched, self._ticks(len(self._touched))))
            changed = f"UPDATE pages SET used = ?, used_at = {_NOW} WHERE id = ?"
            self._base.executemany(changed, uses)
            free = self._free_blocks()
            for size in sizes:
                need = -(-size // BLOCK) or 1
                if free < need:
                    free = self._make_room(need)
                rows.append(self._take(size, need) if free >= need else Status.FULL)
                free -= need if free >= need else 0
        self._unreleased.clear()
        self._touched.clear()
        return rows

    def _publish_some(self, written: Sequence[tuple[Row, str]]) -> list[Status]:
        with self._changing() as base:
            mine = self._mine() if self._data.is_there() else ()
            for tick, (row, key) in enumerate(written, self._ticks(len(written))):
                if row.number in mine:
                    self._free(self._row("SELECT id FROM stored WHERE key = ?", key) or ())
                    page = page_of(key)
                    base.execute(
                        "UPDATE stored SET key = ?, page = ?, owner = NULL WHERE id = ?",
                        (key, page, row.number),
                    )
                    base.execute(
                        f"INSERT INTO pages VALUES (?1, ?2, {_NOW}) ON CONFLICT (id) DO UPDATE"
                        f" SET used = ?2, used_at = {_NOW}",
                        (page, tick),
                    )
        return [Status.DONE if row.number in mine else Status.FAILED for row, _ in written]

    def _delete_some(self, keys: Sequence[str]) -> list[Status]:
        with self._changing():
            result = []
            for key in keys:
                row = self._row("SELECT id FROM stored WHERE key = ?", key)
                result.append(Status.DONE if row else Status.MISSING)
                self._free(row or ())
        return result

    # -- parts of a change

    def _row(self, sql: str, *values: int | str) -> Any:
        return self._base.execute(sql, values).fetchone()

    def _sum(self, runs: str) -> int:
        return int(self._row(f"SELECT COALESCE(SUM(blocks), 0) FROM {runs}")[0])

    def _free_blocks(self) -> int:
        return self._sum(f"runs WHERE value = {FREE}")

    def _blocks(self) -> int:
        """Those that have room on the disk."""
        return self._data.first[0] - self._sum(f"runs WHERE value = {HOLE}")

    def _runs(self, kind: int) -> list[Run]:
        result = self._base.execute("SELECT start, blocks FROM runs WHERE value = ?", (kind,))
        return [Run(*run) for run in result.fetchall()]

    def _may_grow(self) -> int:
        """How many blocks more may get room, as far as is known."""
        spare = self._reserve.spare() // BLOCK if self._reserve else 0
        return max(0, min(spare, self._most - self._blocks()))

    def _make_room(self, need: int) -> int:
        """Let so many blocks be free, if they can. How many are."""
        self._release_dead()
        taken = self._sum("runs JOIN stored ON value = id WHERE owner IS NOT NULL")
        if need > self._blocks() - taken + self._may_grow():
            tell(f"a value of {need * BLOCK:,} bytes finds no room in the store")
            return self._free_blocks()
        while (free := self._free_blocks()) < need:
            if not self._grow() and not self._evict_coldest():
                tell("the disk is full, and nothing that is stored may go")
                break
        return free

    def _grow(self) -> bool:
        """Give a hole room, if the limit and the disk allow it."""
        size = min(self._may_grow(), max(_FIRST_BLOCKS, self._blocks()), _MORE_BLOCKS)
        if size <= 0:
            return False
        hole = min(self._runs(HOLE))
        run = Run(hole.start, min(size, hole.blocks))
        try:
            self._data.allocate(run)
        except OSError as error:
            if not is_full(error):
                raise
            self._data.punch(run)
            return False
        self._cut(hole, run.blocks, FREE, HOLE)
        self._join(run, FREE)
        return True

    def _take(self, length: int, need: int) -> Row:
        """Reserve free blocks for a new value: the smallest run that is large enough, or the
        largest ones."""
        added = "INSERT INTO stored (length, owner) VALUES (?, ?) RETURNING id"
        number, runs = int(self._row(added, length, self._owner)[0]), list[Run]()
        free = f"SELECT start, blocks FROM runs WHERE value = {FREE}"
        while need:
            fits = self._row(f"{free} AND blocks >= ? ORDER BY blocks LIMIT 1", need)
            run = Run(*(fits or self._row(f"{free} ORDER BY blocks DESC LIMIT 1")))
            size = min(need, run.blocks)
            self._cut(run, size, number, FREE)
            runs.append(Run(run.start, size))
            need -= size
        return Row(number, length, tuple(sorted(runs)))

    def _cut(self, run: Run, size: int, value: int, rest: int) -> None:
        """Give the first blocks of a run to a value. What is left stays what it was."""
        base, left = self._base, (run.start + size, run.blocks - size, rest)
        base.execute(
            "UPDATE runs SET blocks = ?, value = ? WHERE start = ?", (size, value, run.start)
        )
        if size < run.blocks:
            base.execute("INSERT INTO runs VALUES (?, ?, ?)", left)

    def _join(self, run: Run, kind: int) -> None:
        """Let a run be free, or a hole, and one with its neighbours of the kind."""
        base, first, end = self._base, run.start, run.start + run.blocks
        before = "SELECT start, value FROM runs WHERE start < ? ORDER BY start DESC LIMIT 1"
        left = self._row(before, first)
        right = self._row("SELECT blocks FROM runs WHERE start = ? AND value = ?", end, kind)
        if left and left[1] == kind:
            first = left[0]
        if right:
            end += right[0]
        base.execute("DELETE FROM runs WHERE start > ? AND start < ?", (first, end))
        base.execute(
            "UPDATE runs SET blocks = ?, value = ? WHERE start = ?", (end - first, kind, first)
        )

    def _free(self, numbers: Sequence[int]) -> None:
        """Free the blocks of values, which are no longer."""
        for number in numbers:
            for run in self._runs(number):
                self._join(run, FREE)
            page = self._row("DELETE FROM stored WHERE id = ? RETURNING page", number)
            self._base.execute(
                "DELETE FROM pages WHERE id = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM stored WHERE page = ?1)",
                page,
            )

    def _evict_coldest(self) -> bool:
        """Free all values of a page. Whether there was one."""
        coldest = "SELECT id FROM pages ORDER BY used LIMIT 1"
        rows = self._base.execute(f"SELECT id FROM stored WHERE page = ({coldest})").fetchall()
        self._free([number for (number,) in rows])
        self._base.execute("UPDATE meta SET evicted = evicted + ?", (len(rows),))
        return bool(rows)

    def _release_dead(self) -> None:
        """Free what stores had reserved that are not open any more."""
        rows = self._base.execute("SELECT id, owner FROM stored WHERE owner IS NOT NULL").fetchall()
        dead = {owner for owner in {owner for _, owner in rows} if not self._alive(owner)}
        self._free([number for number, owner in rows if owner in dead])

    def _mine(self) -> set[int]:
        """The values for which this store has reserved blocks."""
        rows = self._base.execute("SELECT id FROM stored WHERE owner = ?", (self._owner,))
        return {number for (number,) in rows}

    def _ticks(self, count: int) -> int:
        """The first of as many new numbers, each higher than all before."""
        row = self._row("UPDATE meta SET tick = tick + ? RETURNING tick", count)
        return int(row[0]) - count + 1
