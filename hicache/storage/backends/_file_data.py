"""The bytes of the file backend on its disk: segments, each a file of slots whose blocks are
reserved at once, and a reserve for the index.

Knows nothing of keys or of what is stored in a slot; see `_file_index`. Open files are kept for the
next batch, and there are never more than a few.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..base import step

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PAGE_BYTES = 4096  # of the index
_MOST_LOG = 16 << 20  # bytes
_MOST_RESERVE = 1 << 20
_LEAST_RESERVE = 64 << 10
_PART = 16  # of the disk: 1 in so many
_MOST_OPEN = 64
_MOST_BUFFERS = 1024  # IOV_MAX of Linux
_MOST_BYTES = 1 << 20  # of one call


class Data:
    """The segments of one folder. Every call raises OSError for what the system refuses. spare: the
    bytes of the disk that segments leave to the index."""

    def __init__(self, folder: Path, spare: int = 0, writable: bool = True) -> None:
        self.folder = folder
        self.made: list[int] = []  # in the transaction under way
        self._spare = spare
        self._flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        self._lock = threading.Lock()
        self._open: dict[int, list[int]] = {}  # segment: file and number of its users, oldest first

    def room(self) -> int:
        """How many bytes segments may take beside what they have. A quota may allow less."""
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize - self._spare if disk.f_blocks else sys.maxsize

    def create(self, segment: int, size_bytes: int) -> None:
        """Reserve a new segment whole. Nothing is left of it if that fails."""
        self.made.append(segment)
        _fill(self._path(segment), size_bytes)

    def delete(self, segment: int) -> None:
        with self._lock:
            kept = self._open.get(segment)
            if kept is not None and not kept[1]:
                os.close(self._open.pop(segment)[0])
        self._path(segment).unlink(missing_ok=True)

    def has(self, segment: int) -> bool:
        """Whether the segment has a file."""
        return self._path(segment).exists()

    def segments(self) -> list[int]:
        """The segments that have a file."""
        names = [os.path.splitext(name) for name in os.listdir(self.folder)]
        return [int(stem) for stem, end in names if end == ".slots" and stem.isdecimal()]

    def write(self, segment: int, start: int, buffers: Sequence[memoryview]) -> None:
        with self._file(segment) as file:
            left: Sequence[memoryview] = buffers
            while part := _part(left):
                done = os.pwritev(file, part, start)
                step()
                left, start = _behind(left, done), start + done

    def read(self, segment: int, start: int, buffers: Sequence[memoryview]) -> bool:
        """Fill the buffers. False: the file ends before them."""
        with self._file(segment) as file:
            left: Sequence[memoryview] = buffers
            while part := _part(left):
                done = os.preadv(file, part, start)
                if not done:
                    return False
                step()
                left, start = _behind(left, done), start + done
        return True

    def sync(self, segment: int) -> None:
        """Return when what was written to the segment survives a power failure."""
        with self._file(segment) as file:
            os.fdatasync(file)

    def sync_folder(self) -> None:
        """The same for the names of segments."""
        sync_folder(self.folder)

    def close(self) -> None:
        """Close what nobody uses; the rest is closed when its use ends."""
        with self._lock:
            self._close_idle(0)

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment}.slots"

    @contextmanager
    def _file(self, segment: int) -> Iterator[int]:
        with self._lock:
            kept = self._open.pop(segment, None)
            if kept is None:
                kept = [os.open(self._path(segment), self._flags), 0]
            kept[1] += 1
            self._open[segment] = kept  # the newest
        try:
            yield kept[0]
        finally:
            with self._lock:
                kept[1] -= 1
                self._close_idle(_MOST_OPEN)

    def _close_idle(self, most: int) -> None:
        idle = [segment for segment, kept in self._open.items() if not kept[1]]
        for segment in idle[: max(0, len(self._open) - most)]:
            os.close(self._open.pop(segment)[0])


def sync_folder(path: Path) -> None:
    """Return when the names in a folder survive a power failure."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _part(buffers: Sequence[memoryview]) -> list[memoryview]:
    """As much as one call moves: a few bytes, so that a slow disk shows progress."""
    part: list[memoryview] = []
    room = _MOST_BYTES
    for buffer in buffers[:_MOST_BUFFERS]:
        some = buffer.cast("B")[:room]
        part += [some] if some else []
        room -= some.nbytes
    return part


def _behind(buffers: Sequence[memoryview], done: int) -> list[memoryview]:
    """What a call that moved `done` bytes left out."""
    rest = []
    for buffer in buffers:
        flat = buffer.cast("B") if buffer.format != "B" or buffer.ndim != 1 else buffer
        if done < flat.nbytes:
            rest.append(flat[done:])
        done = max(0, done - flat.nbytes)
    return rest


class Reserve:
    """Room on the disk for the index when there is none left: the store must be opened, and values
    evicted, on a disk that others have filled. Both write to the index. So a file of the folder
    holds some blocks for that: it is deleted when the index has no room, and made again when the
    disk has. Also the lock of the folder that all stores on it share."""

    def __init__(self, folder: Path) -> None:
        disk = os.statvfs(folder)
        part = disk.f_blocks * disk.f_frsize // _PART or _MOST_LOG
        self.log_bytes = max(
            _LEAST_RESERVE, min(_MOST_LOG, part)
        )  # of changes, before they are filed
        self._bytes = max(_LEAST_RESERVE, min(_MOST_RESERVE, part))
        self._path = folder / "reserve"
        self._lock = folder / "lock"

    @property
    def spare(self) -> int:
        """The bytes of the disk that are for the index alone."""
        return self._bytes + self.log_bytes

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No other store is opened, or uses the reserve. Afterwards it is made again, if it can."""
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):
                self._make()
            os.close(file)

    def has_room(self) -> bool:
        """Whether the disk has as much as the index needs least."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize >= _LEAST_RESERVE

    def give(self) -> bool:
        """Let the index have the blocks. False: they are gone."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    def lacks(self, error: BaseException) -> bool:
        """Whether the index failed because the disk has no room. Needs the lock."""
        if isinstance(error, OSError):
            return error.errno in NO_ROOM
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_IOERR:
            return is_full(error)
        trial = self._path.with_suffix(".trial")
        try:  # SQLite does not say what it was
            _fill(trial, _LEAST_RESERVE)
        except OSError as refused:
            return refused.errno in NO_ROOM
        trial.unlink()
        return False

    def _make(self) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size >= self._bytes:
                return
        _fill(self._path, self._bytes)


def is_full(error: BaseException) -> bool:
    """Whether a change failed because there was no room for it."""
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _fill(path: Path, size_bytes: int) -> None:
    """Make a file with all its blocks, or none."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(file, 0, size_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
