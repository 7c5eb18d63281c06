"""Room on the disk that the index of a file store needs when there is none left.

The store must be opened, and values evicted, on a disk that others have filled. Both write to the
index. So a file of the folder holds some blocks for that: it is deleted when the index has no room,
and made again when the disk has.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PAGE_BYTES = 4096  # of the index
_MOST_LOG = 16 << 20  # bytes
_MOST = 1 << 20
_LEAST = 64 << 10
_PART = 16  # of the disk: 1 in so many


class Reserve:
    """The file, and the lock of the folder that all stores on it share."""

    def __init__(self, folder: Path) -> None:
        disk = os.statvfs(folder)
        part = disk.f_blocks * disk.f_frsize // _PART or _MOST_LOG
        self.log_bytes = max(_LEAST, min(_MOST_LOG, part))  # of changes, before they are filed
        self._bytes = max(_LEAST, min(_MOST, part))
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
        return disk.f_bavail * disk.f_frsize >= _LEAST

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
            _fill(trial, _LEAST)
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
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(file, 0, size_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
