"""Plain system calls, pread and pwrite: any file system."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from .base import Engine, Lane, Piece

SUMMARY = "pread and pwrite, on any file system"

_PART = 1 << 20  # bytes of one call


def open_engine(path: Path, size: int) -> Engine:
    """Make the file with all its blocks, or open it. Nothing is left of one without room."""
    new = not path.exists()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
    except BaseException:
        os.close(file)
        if new:
            path.unlink()
        raise
    return _Plain(file)


class _Plain(Engine):
    def __init__(self, file: int) -> None:
        self._file = file

    def lane(self) -> Lane:
        return _PlainLane(self._file)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


class _PlainLane(Lane):
    def __init__(self, file: int) -> None:
        self._file = file
        self.memory = memoryview(b"")

    def reserve(self, size: int) -> None:
        if size > self.memory.nbytes:
            self.memory = np.empty(size, np.uint8).data

    def read(self, pieces: Sequence[Piece], moved: Callable[[], None]) -> list[int]:
        return [self._move(piece, moved, reading=True) for piece in pieces]

    def write(self, pieces: Sequence[Piece], moved: Callable[[], None]) -> list[int]:
        return [self._move(piece, moved, reading=False) for piece in pieces]

    def close(self) -> None:
        self.memory = memoryview(b"")

    def _move(self, piece: Piece, moved: Callable[[], None], reading: bool) -> int:
        """A system call may move less than was asked for."""
        done = 0
        while done < piece.size:
            start = piece.start + done
            part = self.memory[start : start + min(_PART, piece.size - done)]
            try:
                if reading:
                    count = os.preadv(self._file, [part], piece.offset + done)
                else:
                    count = os.pwrite(self._file, part, piece.offset + done)
            except OSError as error:
                return -(error.errno or 1)
            if not count:
                break
            done += count
            moved()
        return done
