"""The embedded store: a folder on a local disk, which several processes may use at a time.

lock           flock: the folder is made or opened; its byte N: store N is open
index.sqlite   which blocks hold which key (`file_index`), with SQLite's -wal and -shm
reserve        room on the disk for the index
data           the values

A value is written into blocks that have no key, and gets its key afterwards, so a process that is
killed at any instruction leaves whole values or none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from hicache.core.errors import CallerError

from ..address import Folder, in_folder
from ..base import Address, Entry, Status, Storage, StorageOptions, Value, size_of, tell
from ..file_index import BLOCK, REFUSED, SCHEMA, Data, Index, Reserve, Row, refused

SUMMARY = "file:DIR?size=5GB, a folder on a local disk"

_INDEX = "index.sqlite"
_BEGUN = {_INDEX, f"{_INDEX}-journal", "lock", "reserve", "data"}  # what is made first
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_OTHER = "name another folder, or delete this one"


def open_storage(address: Address, options: StorageOptions) -> FileStore:
    where = in_folder(address, options)
    return FileStore(Path(os.path.expanduser(where.path)), where, options)


class FileStore(Storage):
    """One open folder. If the folder is deleted under it, it begins a new one."""

    version = 3  # of the folder, as the index says

    def __init__(self, path: Path, where: Folder, options: StorageOptions) -> None:
        """path: of the index. Raises CallerError for a folder that cannot be used."""
        self._path, self._where, self._options = path, where, options
        self._lock = threading.Lock()
        self._closed = False
        if not options.create and not (path / _INDEX).exists():
            raise CallerError(f"storage: expected a store, found none in {path}; check the path")
        self._opened: Opened | None = self._open()

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        try:
            rows = self._use().index.find(keys)
        except REFUSED as error:
            tell(error)
            return [None] * len(keys)
        return [key in rows for key in keys]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        """Read each value, and see afterwards that its blocks were not given away meanwhile."""
        try:
            opened = self._use()
            rows = opened.index.find(keys)
            jobs = {
                at: (rows[key], values[at])
                for at, key in enumerate(keys)
                if key in rows and rows[key].length == size_of(values[at])
            }
            read = opened.data.move([*jobs.values()], True, False, lambda: None)
            became = dict(zip(jobs, read or [Status.FAILED] * len(jobs), strict=True))
            moved = opened.index.moved(rows)
            statuses = [became.get(at, Status.CORRUPT) for at in range(len(keys))]
            for at, key in enumerate(keys):
                if key not in rows or (key in moved and statuses[at] is not Status.FAILED):
                    statuses[at] = Status.MISSING
            done = zip(keys, statuses, strict=True)
            opened.index.touch([key for key, status in done if status is Status.DONE])
        except REFUSED as error:
            return [refused(error)] * len(keys)
        return statuses

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        """Write each value into reserved blocks; what is written gets its key, all in one step."""
        try:
            opened = self._use(writing=True)
            rows = opened.index.reserve([size_of(value) for value in values], keys)
        except REFUSED as error:
            return [refused(error)] * len(keys)
        statuses = [Status.FAILED if isinstance(row, Row) else row for row in rows]
        jobs = {at: (row, values[at]) for at, row in enumerate(rows) if isinstance(row, Row)}
        release = partial(opened.index.release, [row for row, _ in jobs.values()])
        try:
            written = opened.data.move([*jobs.values()], False, self._where.durable, release)
        except OSError as error:
            written = [refused(error)] * len(jobs)
        if written is None:  # it is under way, and releases the blocks itself
            return statuses
        ready = [at for at, status in zip(jobs, written, strict=True) if status is Status.DONE]
        done = opened.index.publish([(jobs[at][0], keys[at]) for at in ready])
        for at, status in (*zip(jobs, written, strict=True), *zip(ready, done, strict=True)):
            statuses[at] = status
        opened.index.release([jobs[at][0] for at in jobs if statuses[at] is not Status.DONE])
        return statuses

    def delete(self, keys: Sequence[str]) -> list[Status]:
        try:
            return self._use(writing=True).index.delete(keys)
        except REFUSED as error:
            return [refused(error)] * len(keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        try:
            yield from self._use().index.entries(prefix)
        except sqlite3.Error as error:
            raise OSError(errno.EIO, str(error)) from error

    def stats(self) -> dict[str, int | float | str]:
        try:
            return self._use().index.stats()
        except REFUSED:
            return {}

    def troubles(self) -> str:
        why = self._opened.unwritable if self._opened else None
        return f"{why.strerror}, so it is read, and nothing is stored" if why else ""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _use(self, writing: bool = False) -> Opened:
        """The open folder. What was opened for reading alone is opened again for the first write
        that may work. Raises OSError if there is none, or if it cannot be written."""
        opened = self._opened
        if opened is None or not opened.is_there() or (writing and opened.unwritable):
            opened = self._again(opened)
        if writing and opened.unwritable:
            raise opened.unwritable
        return opened

    def _again(self, before: Opened | None) -> Opened:
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "the store is closed")
            if self._opened is None or self._opened is before:
                gone, self._opened = self._opened, None
                if gone is not None:
                    gone.close()
                try:
                    self._opened = self._open()
                except CallerError as error:
                    raise OSError(errno.EIO, str(error)) from error
            return self._opened

    def _open(self) -> Opened:
        timeout_s = self._options.timeout_s
        return Opened(self._path, self.version, self._data(), self._where, timeout_s)

    def _data(self) -> Data:
        return Data(self._path / "data")


class Opened:
    """An open folder: its index, its data and the lock that says that this store lives.

    A folder that cannot be written, or that has no room for anything on a full disk, is opened for
    reading. unwritable: why, or None."""

    def __init__(
        self, path: Path, version: int, data: Data, where: Folder, timeout_s: float
    ) -> None:
        """Raises CallerError for a folder that cannot be used, and leaves it as it was."""
        self.path, self.data = path, data
        self.unwritable: OSError | None = None
        self._where, self._timeout_s = where, timeout_s
        self._index, self._version = path / _INDEX, version
        self._file = -1  # the lock
        with _refusing(path):
            is_ours = self._check()
            try:
                self._open()
            except REFUSED as error:
                code = getattr(error, "errno", 0)
                if is_ours and Reserve(path).lacks(error):
                    self.unwritable = OSError(errno.ENOSPC, f"the disk of {path} is full")
                elif is_ours and code in _READ_ONLY:
                    self.unwritable = OSError(code, f"{path} cannot be written")
                else:
                    raise
                self._open_for_reading()
            self._seen = self._look()

    def is_there(self) -> bool:
        """Whether the folder still is the one that was opened."""
        try:
            return self._look() == self._seen and (bool(self.unwritable) or self.data.is_there())
        except OSError:
            return False

    def close(self) -> None:
        self.data.close()
        with suppress(*REFUSED):  # what was read last is not remembered
            self.index.close()
        if self._file >= 0:
            os.close(self._file)

    def _open(self) -> None:
        reserve = Reserve(self.path)
        with reserve.locked():
            try:
                self._connect(reserve)
            except REFUSED as error:
                if not reserve.lacks(error) or not reserve.give():
                    raise
                self._connect(reserve)

    def _connect(self, reserve: Reserve) -> None:
        with ExitStack() as undo:
            base = _connection(str(self._index), self._timeout_s)
            undo.callback(base.close)
            base.executescript(SCHEMA.format(version=self._version))
            base.execute("PRAGMA journal_mode = WAL")
            base.execute(f"PRAGMA synchronous = {'FULL' if self._where.durable else 'NORMAL'}")
            base.execute(f"PRAGMA wal_autocheckpoint = {reserve.log_bytes // BLOCK}")
            number = base.execute("UPDATE meta SET tick = tick + 1 RETURNING tick").fetchone()[0]
            file = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
            undo.callback(os.close, file)
            _lock_byte(file, number)
            size_bytes = self._where.size_bytes
            self.index = Index(base, self.data, size_bytes, number, self._is_open, reserve)
            self.index.clean()
            self._file = file
            undo.pop_all()

    def _is_open(self, number: int) -> bool:
        """Whether the store with this number is open, in any process."""
        with open(self.path / "lock", "rb+") as file:
            return not _lock_byte(file.fileno(), number)

    def _open_for_reading(self) -> None:
        """Without a change of the folder. SQLite reads a log where another process has left what
        it writes beside one; an index without a log is read as it is."""
        how = "mode=ro" if self._log_bytes() else "immutable=1"
        base = _connection(f"{self._index.absolute().as_uri()}?{how}", self._timeout_s, True)
        self.index = Index(base, self.data, 0, 0, lambda _: True)
        self.index.find(())  # raises if it cannot be read

    def _look(self) -> tuple[int, ...]:
        """What stays the same as long as the folder is the one that was opened. An index that was
        opened for reading may be read without locks, so it must not change."""
        result = os.stat(self._index)
        if not self.unwritable:
            return (result.st_ino,)
        return result.st_ino, result.st_mtime_ns, result.st_size, self._log_bytes()

    def _log_bytes(self) -> int:
        try:
            return os.stat(f"{self._index}-wal").st_size
        except FileNotFoundError:
            return 0

    def _check(self) -> bool:
        """Check that the folder has a store of our version, or nothing but what a store begins
        with. Changes nothing in it. Returns whether it has a store."""
        path, head = self.path, b""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            _refuse(f"expected a folder, found a file in {path}", "name another place")
        with suppress(FileNotFoundError), open(self._index, "rb") as file:
            head = file.read(64)  # of SQLite's header: its name first, our version last
        if head and (head[:7] != b"SQLite " or head[60:] != self._version.to_bytes(4)):
            _refuse(f"expected a store of version {self._version} in {path}, found another", _OTHER)
        if not head and self.data.path.exists() and self.data.path.stat().st_size:
            mend = "put its index.sqlite back, or delete the folder"
            _refuse(f"expected the index of the values in {path}, found none", mend)
        strange = sorted({item.name for item in path.iterdir()} - _BEGUN)
        if strange and not head:
            what = f"expected a store or an empty folder, found {strange[0]!a} in {path}"
            _refuse(what, "name another folder")
        return bool(head)


def _lock_byte(file: int, number: int) -> bool:
    """Lock a byte of a file until it is closed. False: another opened file has it."""
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _connection(name: str, timeout_s: float, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(
        name,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
        uri=uri,
    )


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what the system refuses into one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        mend = "free some space, or name another folder"
        _refuse(f"expected a folder that can be written, found at {path}: {reason}", mend)
    except sqlite3.Error as error:
        _refuse(f"expected an index that can be opened, found in {path}: {error}", _OTHER)


def _refuse(what: str, advice: str) -> NoReturn:
    raise CallerError(f"storage: {what}; {advice}")
