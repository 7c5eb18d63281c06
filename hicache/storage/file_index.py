"""The index of a folder of values, in SQLite: which blocks of which segments hold which value.

A segment is a file of blocks of 4096 bytes, reserved on the disk at once. Each run of blocks is
free, or belongs to one value. A value without a key is reserved by an open store: it does not exist
for readers, so a value whose writer was killed does not exist. Every change is one transaction,
which all processes on the folder see whole or not at all. The values of a page go together, the
page that was used least recently first; uses are filed with the next change.

If the disk has no room for a change, three things make some, one after the other: SQLite's log
begins anew, the reserve is given up, and the coldest segment. What was to be changed at once is
changed in parts then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import xxhash

from .base import Entry, Status, tell

VERSION = 2
BLOCK = 4096  # bytes
SEGMENT_BYTES = 64 << 20
_FIRST_BLOCKS = 16  # of the first segment; each further one doubles what there is
_ROOM = 0.8  # of the disk's room for values, the rest for the index
_AT_ONCE = 500  # keys in one query
_MOST_TOUCHED = 4096
_MOST_LOG, _MOST_RESERVE, _LEAST_RESERVE = 16 << 20, 1 << 20, 64 << 10  # bytes
_PART = 16  # of the disk, 1 in so many, is for the log and the reserve
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (OSError, sqlite3.Error)
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"  # the store's own clock, for ages of entries
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (tick INTEGER, evicted INTEGER, lost INTEGER);
INSERT INTO meta SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM meta);
CREATE TABLE IF NOT EXISTS segments (id INTEGER PRIMARY KEY AUTOINCREMENT, blocks INTEGER);
CREATE TABLE IF NOT EXISTS runs (
  segment INTEGER, start INTEGER, blocks INTEGER, value INTEGER, PRIMARY KEY (segment, start)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_value ON runs (value, blocks);
CREATE TABLE IF NOT EXISTS stored (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, page INTEGER, length INTEGER, owner INTEGER
);
CREATE INDEX IF NOT EXISTS by_page ON stored (page) WHERE page IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_owner ON stored (owner) WHERE owner IS NOT NULL;
CREATE TABLE IF NOT EXISTS pages (id INTEGER PRIMARY KEY, used INTEGER, used_at INTEGER);
CREATE INDEX IF NOT EXISTS by_use ON pages (used);
PRAGMA user_version = {VERSION};
COMMIT;
"""

One = TypeVar("One")
Done = TypeVar("Done")


class Run(NamedTuple):
    """Blocks of one segment."""

    segment: int
    start: int
    blocks: int


class Row(NamedTuple):
    """A value's bytes and its runs in their order. No two values ever have the same number."""

    number: int
    length: int
    runs: tuple[Run, ...]


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


def failed(error: Exception) -> Status:
    """What becomes of a value that cannot be read or deleted."""
    tell(error)
    return Status.FAILED


def refused(error: Exception) -> Status:
    """What becomes of a value that cannot be written."""
    tell(error)
    return Status.FULL if is_full(error) else Status.FAILED


def allocate(path: Path, size_bytes: int) -> None:
    """Make a file with all its blocks, or none."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(file, 0, size_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def room_of(folder: Path) -> int:
    """Free bytes of the disk. A quota may allow less."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize if disk.f_blocks else sys.maxsize


class Files:
    """The files of segments. Every call raises OSError for what the system refuses. whole: there is
    one segment, of the store's size."""

    whole = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, segment: int) -> Path:
        return self.folder / f"{segment}.slots"

    def create(self, segment: int, size_bytes: int) -> None:
        """Reserve a new segment whole. Nothing is left of it if that fails."""
        allocate(self.path(segment), size_bytes)

    def delete(self, segment: int) -> None:
        self.path(segment).unlink(missing_ok=True)

    def segments(self) -> set[int]:
        """Those that have a file."""
        try:
            names = [os.path.splitext(name) for name in os.listdir(self.folder)]
        except FileNotFoundError:
            return set()
        return {int(stem) for stem, end in names if end == ".slots" and stem.isdecimal()}


class Reserve:
    """Room on the disk for the index when others have filled it: some blocks in a file, which is
    deleted when the index has no room, and made again when the disk has. Also the lock of the
    folder that all stores on it share."""

    def __init__(self, folder: Path) -> None:
        disk = os.statvfs(folder)
        part = disk.f_blocks * disk.f_frsize // _PART or _MOST_LOG
        self.log_bytes = max(_LEAST_RESERVE, min(_MOST_LOG, part))
        self._bytes = max(_LEAST_RESERVE, min(_MOST_RESERVE, part))
        self.spare = self._bytes + self.log_bytes  # bytes of the disk for the index alone
        self._path, self._lock = folder / "reserve", folder / "lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No other store is opened, or uses the reserve. Afterwards it is made again, if it can."""
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):
                if not self._path.exists() or self._path.stat().st_size < self._bytes:
                    allocate(self._path, self._bytes)
            os.close(file)

    def has_room(self) -> bool:
        """Whether the disk has as much as the index needs least."""
        return room_of(self._path.parent) >= _LEAST_RESERVE

    def give(self) -> bool:
        """Let the index have the blocks. False: they are gone."""
        there = self._path.exists()
        self._path.unlink(missing_ok=True)
        return there

    def lacks(self, error: BaseException) -> bool:
        """Whether the index failed because the disk has no room. Needs the lock."""
        code = getattr(error, "sqlite_errorcode", 0)
        if isinstance(error, OSError) or code & 0xFF != sqlite3.SQLITE_IOERR:
            return is_full(error)
        trial = self._path.with_suffix(".trial")
        try:  # SQLite does not say what it was
            allocate(trial, _LEAST_RESERVE)
        except OSError as why:
            return is_full(why)
        trial.unlink()
        return False


class Index:
    """The index of one open store. base: a connection that may be used from any thread. size_bytes:
    the most of all segments; 0: none. owner: the store's number. alive: whether the store with a
    number is open. reserve: None if the folder is only read.

    A call raises sqlite3.Error and OSError for what the system refuses, and has then changed
    nothing."""

    def __init__(
        self,
        base: sqlite3.Connection,
        files: Files,
        size_bytes: int,
        owner: int,
        alive: Callable[[int], bool],
        reserve: Reserve | None = None,
    ) -> None:
        self._base, self._files, self._reserve = base, files, reserve
        self._size_bytes, self._owner, self._alive = size_bytes, owner, alive
        self._lock = threading.RLock()
        self._changes = 0
        self._touched: dict[int, None] = {}  # pages that were used, the last one last
        self._unreleased: list[int] = []  # values
        self._made: list[int] = []  # segments, in the transaction under way
        self._gone: list[int] = []  # segments whose files are to be deleted

    # -- what a store asks

    def find(self, keys: Sequence[str]) -> tuple[dict[str, Row], tuple[int, int]]:
        """The rows of the keys that are stored, and a stamp for `moved`."""
        rows: dict[str, Row] = {}
        with self._lock:
            stamp = self._stamp()
            for first in range(0, len(keys), _AT_ONCE):
                some = keys[first : first + _AT_ONCE]
                for key, number, length, *run in self._base.execute(
                    "SELECT key, id, length, segment, start, blocks FROM stored JOIN runs ON"
                    f" value = id WHERE key IN ({','.join('?' * len(some))}) ORDER BY segment,"
                    " start",
                    some,
                ):
                    before = rows[key].runs if key in rows else ()
                    rows[key] = Row(number, length, (*before, Run(*run)))
        return rows, stamp

    def moved(self, rows: dict[str, Row], stamp: tuple[int, int]) -> set[str]:
        """The keys whose blocks may hold something else since `find`."""
        with self._lock:
            if self._stamp() == stamp:
                return set()
        now, _ = self.find(list(rows))
        return {key for key, row in rows.items() if now.get(key) != row}

    def touch(self, keys: Sequence[str]) -> None:
        """Note that the pages of these values were used, the last of them last."""
        with self._lock:
            for page in map(page_of, keys):
                self._touched.pop(page, None)
                self._touched[page] = None
            if len(self._touched) > _MOST_TOUCHED:
                with suppress(*REFUSED), self._settling():
                    return
                for page in list(self._touched)[:-_MOST_TOUCHED]:
                    del self._touched[page]

    def reserve(self, sizes: Sequence[int], keys: Sequence[str]) -> list[Row | Status]:
        """Blocks for each value, or what becomes of it without. The text of a context is used
        whenever a page of it is written."""
        self.touch([f"{context}/context" for context in {key.partition("/")[0] for key in keys}])
        return self._in_parts(self._reserve_some, sizes, refused)

    def publish(self, written: Sequence[tuple[Row, str]]) -> list[Status]:
        """Let each value be what the key means. `FAILED` for one that is no longer reserved for
        this store, or whose segment has no file any more."""
        return self._in_parts(self._publish_some, written, refused)

    def release(self, rows: Sequence[Row]) -> None:
        """Give reserved blocks back, now or with the next change."""
        with self._lock:
            self._unreleased += [row.number for row in rows]
            with suppress(*REFUSED), self._settling():
                pass

    def delete(self, keys: Sequence[str]) -> list[Status]:
        """Delete each key. Segments without values go."""
        if not self.find(keys)[0]:
            return [Status.MISSING] * len(keys)
        return self._in_parts(self._delete_some, keys, failed)

    def forget_lost(self) -> None:
        """Forget segments whose files are gone, now or when one is asked for again."""
        with suppress(*REFUSED), self._changing():
            self._drop_lost(self._there())

    def entries(self, prefix: str) -> Iterator[Entry]:
        last = ""
        while True:
            with self._lock:
                rows = self._base.execute(
                    "SELECT key, length, used_at FROM stored JOIN pages ON pages.id = page"
                    " WHERE key > ? AND key >= ? ORDER BY key LIMIT ?",
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
        """used_bytes: of blocks that are not free."""
        with self._lock:
            values, stored = self._base.execute(
                "SELECT COUNT(*), COALESCE(SUM(length), 0) FROM stored WHERE key IS NOT NULL"
            ).fetchone()
            evicted, lost = self._base.execute("SELECT evicted, lost FROM meta").fetchone()
            return {
                "values": values,
                "bytes": stored,
                "disk_bytes": self._blocks() * BLOCK,
                "used_bytes": (self._blocks() - self._free_blocks()) * BLOCK,
                "evicted": evicted,
                "lost": lost,
            }

    def clean(self) -> None:
        """Undo what killed processes left, and drop the coldest segments while there are more bytes
        than the store may use."""
        with self._changing() as base:
            self._release_dead()
            there = self._files.segments()
            self._drop_lost(there)
            for segment in there - {row[0] for row in base.execute("SELECT id FROM segments")}:
                with suppress(OSError):
                    self._files.delete(segment)  # now: its number may be given again
            while self._size_bytes and self._blocks() * BLOCK > self._size_bytes:
                if not (coldest := self._coldest_segment()):
                    break
                self._drop(coldest)
            if self._files.whole and not self._blocks():
                self._grow()

    def close(self) -> None:
        with self._lock:
            try:
                if self._touched or self._unreleased:
                    with self._settling():
                        pass
            finally:
                self._base.close()

    # -- changes

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: no other process changes the index or the segments meanwhile."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            waiting = len(self._gone)
            self._made.clear()
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                for segment in self._made:
                    with suppress(OSError):
                        self._files.delete(segment)
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                del self._gone[waiting:]
                raise
            self._changes += 1
            gone, self._gone = self._gone, []
            for segment in set(gone).difference(self._made):  # only now does nobody look there
                try:
                    self._files.delete(segment)
                except OSError:
                    self._gone.append(segment)

    @contextmanager
    def _settling(self) -> Iterator[sqlite3.Connection]:
        """A change that also files what waits for one. It waits on if that fails."""
        with self._lock:
            with self._changing() as base:
                if self._unreleased:
                    self._free(list(self._mine().intersection(self._unreleased)))
                self._file_uses()
                yield base
            self._unreleased.clear()
            self._touched.clear()

    def _in_parts(
        self,
        change: Callable[[Sequence[One]], list[Done]],
        items: Sequence[One],
        end: Callable[[Exception], Done],
    ) -> list[Done]:
        """Make a change for all of them, in parts where it must be; what became of each. What is
        left `end`s when even one has no room, or for another error."""
        done: list[Done] = []
        size = len(items)
        while len(done) < len(items):
            part = items[len(done) : len(done) + size]
            try:
                done += self._insist(partial(change, part), alone=size == 1)
            except REFUSED as error:
                if size == 1 or not is_full(error):
                    return done + [end(error)] * (len(items) - len(done))
                size //= 2
        return done

    def _insist(self, change: Callable[[], Done], alone: bool) -> Done:
        """Make a change. Where the disk has no room for it, find some and try again. alone: it is
        the smallest part, so a segment may go for it."""
        with self._lock:
            try:
                return change()
            except REFUSED as error:
                if self._reserve is None:
                    raise
                refusal = error
            with self._reserve.locked():
                ways = [self._restart_log]
                if self._reserve.lacks(refusal):
                    ways += [self._reserve.give, *([self._give_up] if alone else [])]
                for found_room in ways:
                    try:
                        if found_room():
                            return change()
                    except REFUSED as error:
                        refusal = error
        raise refusal

    def _restart_log(self) -> bool:
        """File what SQLite has logged, so that the room of the log is used again."""
        with suppress(sqlite3.Error):
            self._base.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        return True

    def _give_up(self) -> bool:
        """End the coldest segment, its file first: the index has its room then."""
        if self._files.whole:
            return False
        with self._changing():
            self._file_uses()
            coldest = self._coldest_segment()
            if coldest:
                self._files.delete(coldest)
                self._drop(coldest)
        return coldest > 0

    def _reserve_some(self, sizes: Sequence[int]) -> list[Row | Status]:
        with self._settling():
            found: list[Row | Status] = []
            free = self._free_blocks()
            for size in sizes:
                need = -(-size // BLOCK) or 1
                if free < need and self._may_fit(need, free):
                    while free < need and (more := self._make_room(free)):
                        free += more
                found.append(self._take(size, need) if free >= need else Status.FULL)
                free -= need if free >= need else 0
        return found

    def _publish_some(self, written: Sequence[tuple[Row, str]]) -> list[Status]:
        segments, done = self._there(), []
        with self._changing() as base:
            tick, mine = self._ticks(len(written)), self._mine()
            old = {
                key: row.number for key, row in self.find([key for _, key in written])[0].items()
            }
            for number, (row, key) in enumerate(written, tick):
                good = row.number in mine and {run.segment for run in row.runs} <= segments
                done.append(Status.DONE if good else Status.FAILED)
                if good:
                    self._free([old[key]] if key in old else ())
                    old[key] = row.number
                    base.execute(
                        "UPDATE stored SET key = ?, page = ?, owner = NULL WHERE id = ?",
                        (key, page_of(key), row.number),
                    )
                    base.execute(
                        f"INSERT INTO pages VALUES (?1, ?2, {_NOW}) ON CONFLICT (id) DO UPDATE"
                        f" SET used = ?2, used_at = {_NOW}",
                        (page_of(key), number),
                    )
        if Status.FAILED in done:
            self.forget_lost()
        return done

    def _delete_some(self, keys: Sequence[str]) -> list[Status]:
        with self._settling() as base:
            found = []
            for key in keys:
                row = base.execute("SELECT id FROM stored WHERE key = ?", (key,)).fetchone()
                found.append(Status.DONE if row else Status.MISSING)
                self._free(row or ())
            empty = "SELECT id FROM segments WHERE id NOT IN (SELECT segment FROM runs WHERE value)"
            for (segment,) in [] if self._files.whole else base.execute(empty).fetchall():
                self._drop(segment)
        return found

    # -- parts of a change

    def _blocks(self, more: str = "") -> int:
        found: int = self._base.execute(
            f"SELECT COALESCE(SUM(blocks), 0) FROM {more or 'segments'}"
        ).fetchone()[0]
        return found

    def _free_blocks(self) -> int:
        return self._blocks("runs WHERE value = 0")

    def _may_grow(self) -> int:
        """How many blocks more the store may have, as far as is known."""
        if self._files.whole:
            return 0 if self._blocks() else self._size_bytes // BLOCK
        room = room_of(self._files.folder) - (self._reserve.spare if self._reserve else 0)
        blocks = max(0, int(room * _ROOM)) // BLOCK
        return (
            min(blocks, self._size_bytes // BLOCK - self._blocks()) if self._size_bytes else blocks
        )

    def _may_fit(self, need: int, free: int) -> bool:
        """Whether so many blocks can be free when all stored values have gone."""
        more = max(0, self._may_grow())
        if need > free + more:
            self._release_dead()
            taken = self._blocks("runs JOIN stored ON value = id WHERE key IS NULL")
            if need > self._blocks() - taken + more:
                tell(f"a value of {need * BLOCK:,} bytes finds no room in the store")
                return False
        return True

    def _make_room(self, free: int) -> int:
        """Free or add blocks; how many. 0: nothing more can go."""
        if more := self._grow():
            return more
        self._release_dead()
        if (more := self._free_blocks() - free) > 0:
            return more
        row = self._base.execute("SELECT id FROM pages ORDER BY used LIMIT 1").fetchone()
        if row is None:
            tell("the disk is full, and nothing that is stored may go")
            return 0
        self._evict([row[0]])
        return self._free_blocks() - free

    def _grow(self) -> int:
        """Add a segment, if the limit and the disk allow one; how many blocks it has."""
        size = self._may_grow()
        if not self._files.whole:
            size = min(size, max(_FIRST_BLOCKS, self._blocks()), SEGMENT_BYTES // BLOCK)
        if size <= 0:
            return 0
        row = (1 if self._files.whole else None, size)
        segment = int(self._base.execute("INSERT INTO segments VALUES (?, ?)", row).lastrowid or 0)
        self._made.append(segment)
        try:
            self._files.create(segment, size * BLOCK)
        except OSError as error:
            if not is_full(error) or self._files.whole:
                raise
            self._base.execute("DELETE FROM segments WHERE id = ?", (segment,))
            return 0
        self._base.execute("INSERT INTO runs VALUES (?, 0, ?, 0)", (segment, size))
        return size

    def _take(self, length: int, need: int) -> Row:
        """Reserve free blocks for a new value: the smallest run that is large enough, or the
        largest ones."""
        base, runs = self._base, list[Run]()
        added = base.execute(
            "INSERT INTO stored (length, owner) VALUES (?, ?)", (length, self._owner)
        )
        number = int(added.lastrowid or 0)
        free = "SELECT segment, start, blocks FROM runs WHERE value = 0"
        while need:
            run = (
                base.execute(f"{free} AND blocks >= ? ORDER BY blocks LIMIT 1", (need,)).fetchone()
                or base.execute(f"{free} ORDER BY blocks DESC LIMIT 1").fetchone()
            )
            segment, start, blocks = run
            size = min(need, blocks)
            base.execute(
                "UPDATE runs SET blocks = ?, value = ? WHERE segment = ? AND start = ?",
                (size, number, segment, start),
            )
            if size < blocks:
                rest = (segment, start + size, blocks - size)
                base.execute("INSERT INTO runs VALUES (?, ?, ?, 0)", rest)
            runs.append(Run(segment, start, size))
            need -= size
        return Row(number, length, tuple(sorted(runs)))

    def _free(self, numbers: Sequence[int]) -> None:
        """Free the blocks of values, which are no longer. Runs that touch become one."""
        base = self._base
        for number in numbers:
            for segment, start, blocks in base.execute(
                "SELECT segment, start, blocks FROM runs WHERE value = ?", (number,)
            ).fetchall():
                first, end = start, start + blocks
                left = base.execute(
                    "SELECT start, value FROM runs WHERE segment = ? AND start < ?"
                    " ORDER BY start DESC LIMIT 1",
                    (segment, start),
                ).fetchone()
                right = base.execute(
                    "SELECT blocks FROM runs WHERE segment = ? AND start = ? AND value = 0",
                    (segment, end),
                ).fetchone()
                if left and not left[1]:
                    first = left[0]
                if right:
                    end += right[0]
                if (first, end) != (start, start + blocks):
                    base.execute(
                        "DELETE FROM runs WHERE segment = ? AND start > ? AND start < ?",
                        (segment, first, end),
                    )
                base.execute(
                    "UPDATE runs SET blocks = ?, value = 0 WHERE segment = ? AND start = ?",
                    (end - first, segment, first),
                )
            page = base.execute(
                "DELETE FROM stored WHERE id = ? RETURNING page", (number,)
            ).fetchone()
            base.execute(
                "DELETE FROM pages WHERE id = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM stored WHERE page = ?1)",
                page,
            )

    def _evict(self, pages: Sequence[int], counted: str = "evicted") -> None:
        """Free all values of these pages."""
        for page in pages:
            rows = self._base.execute("SELECT id FROM stored WHERE page = ?", (page,)).fetchall()
            self._free([number for (number,) in rows])
            self._base.execute(f"UPDATE meta SET {counted} = {counted} + ?", (len(rows),))

    def _drop(self, segment: int, counted: str = "evicted") -> None:
        """Remove a segment, the pages that have a value in it, and what is reserved there."""
        base = self._base
        rows = base.execute(
            "SELECT id, page FROM stored WHERE id IN (SELECT value FROM runs WHERE segment = ?)",
            (segment,),
        ).fetchall()
        self._evict(list({page for _, page in rows if page is not None}), counted)
        self._free([number for number, page in rows if page is None])
        base.execute("DELETE FROM runs WHERE segment = ?", (segment,))
        base.execute("DELETE FROM segments WHERE id = ?", (segment,))
        self._gone.append(segment)

    def _there(self) -> set[int]:
        """The segments that have a file. One on a mount that may hang is not looked for."""
        return {1} if self._files.whole else self._files.segments()

    def _drop_lost(self, there: set[int]) -> None:
        for (segment,) in self._base.execute("SELECT id FROM segments").fetchall():
            if segment not in there:
                self._drop(segment, "lost")

    def _coldest_segment(self) -> int:
        """The one without reserved blocks whose last use is the longest ago; 0: there is none."""
        row = self._base.execute(
            "SELECT segments.id FROM segments LEFT JOIN runs ON segment = segments.id LEFT JOIN"
            " stored ON stored.id = value LEFT JOIN pages ON pages.id = page GROUP BY segments.id"
            " HAVING COUNT(owner) = 0 ORDER BY COALESCE(MAX(used), 0) LIMIT 1"
        ).fetchone()
        return row[0] if row else 0

    def _release_dead(self) -> None:
        """Free what stores had reserved that are not open any more."""
        reserved = self._base.execute(
            "SELECT id, owner FROM stored WHERE owner IS NOT NULL"
        ).fetchall()
        dead = {owner for owner in {owner for _, owner in reserved} if not self._alive(owner)}
        self._free([number for number, owner in reserved if owner in dead])

    def _mine(self) -> set[int]:
        """The values for which this store has reserved blocks."""
        rows = self._base.execute("SELECT id FROM stored WHERE owner = ?", (self._owner,))
        return {number for (number,) in rows}

    def _file_uses(self) -> None:
        if self._touched:
            self._base.executemany(
                f"UPDATE pages SET used = ?, used_at = {_NOW} WHERE id = ?",
                list(enumerate(self._touched, self._ticks(len(self._touched)))),
            )

    def _ticks(self, count: int) -> int:
        """The first of as many new numbers, each higher than all before."""
        row = self._base.execute("UPDATE meta SET tick = tick + ? RETURNING tick", (count,))
        last: int = row.fetchone()[0]
        return last - count + 1

    def _stamp(self) -> tuple[int, int]:
        """Another one when anything may have changed, here or in another process."""
        version: int = self._base.execute("PRAGMA data_version").fetchone()[0]
        return version, self._changes
