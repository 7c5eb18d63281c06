"""The bytes of the file backend: segments, each a file of slots whose blocks are reserved at once.

Knows nothing of keys or of what is stored in a slot; see `_file_index`. Open files are kept for the
next batch, and there are never more than a few.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_MOST_OPEN = 64
_MOST_BUFFERS = 1024  # IOV_MAX of Linux


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
        path = self._path(segment)
        self.made.append(segment)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(file, 0, size_bytes)
            finally:
                os.close(file)
        except OSError:
            path.unlink(missing_ok=True)
            raise

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
            for part in _parts(buffers):
                size = sum(buffer.nbytes for buffer in part)
                done = os.pwritev(file, part, start)
                while done < size:
                    done += os.pwritev(file, _behind(part, done), start + done)
                start += size

    def read(self, segment: int, start: int, buffers: Sequence[memoryview]) -> bool:
        """Fill the buffers. False: the file ends before them."""
        with self._file(segment) as file:
            for part in _parts(buffers):
                size = sum(buffer.nbytes for buffer in part)
                done = os.preadv(file, part, start)
                while done < size:
                    more = os.preadv(file, _behind(part, done), start + done)
                    if not more:
                        return False
                    done += more
                start += size
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


def _parts(buffers: Sequence[memoryview]) -> Iterator[Sequence[memoryview]]:
    """As many buffers at a time as one call takes."""
    for start in range(0, len(buffers), _MOST_BUFFERS):
        yield buffers[start : start + _MOST_BUFFERS]


def _behind(buffers: Sequence[memoryview], done: int) -> list[memoryview]:
    """What a call that moved `done` bytes left out."""
    rest = []
    for buffer in buffers:
        flat = buffer.cast("B") if buffer.format != "B" or buffer.ndim != 1 else buffer
        if done < flat.nbytes:
            rest.append(flat[done:])
        done = max(0, done - flat.nbytes)
    return rest
