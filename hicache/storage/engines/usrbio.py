"""USRBIO, the interface of 3FS that moves bytes past the kernel, through its package hf3fs_fuse.

This file was never run on a cluster: the package builds only inside the sources of 3FS, and its
server needs RDMA. Its calls follow the published interface (`hf3fs_fuse.io`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import cast

from hf3fs_fuse.io import deregister_fd, extract_mount_point, make_ioring, make_iovec, register_fd

from .base import Engine, Lane, Piece

SUMMARY = "USRBIO of 3FS, on a 3FS mount with the package hf3fs_fuse"

_ENTRIES = 256  # of a ring: pieces under way


def open_engine(path: Path, size: int) -> Engine:
    """Make the file, or open it. 3FS allocates blocks when they are written."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, size)
        register_fd(file)
    except BaseException:
        os.close(file)
        raise
    return _Usrbio(file, extract_mount_point(str(path)))


class _Usrbio(Engine):
    def __init__(self, file: int, mount: str) -> None:
        self._file, self._mount = file, mount

    def lane(self) -> Lane:
        return _UsrbioLane(self._file, self._mount)

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        deregister_fd(self._file)
        os.close(self._file)


class _UsrbioLane(Lane):
    """Shared memory that the daemon of 3FS knows, and a ring for each direction."""

    def __init__(self, file: int, mount: str) -> None:
        self._file, self._mount = file, mount
        self._shared: SharedMemory | None = None
        self.memory = memoryview(b"")
        self._rings = {
            reading: make_ioring(mount, _ENTRIES, for_read=reading, timeout=1, numa=-1)
            for reading in (True, False)
        }

    def reserve(self, size: int) -> None:
        if size > self.memory.nbytes:
            self._release()
            self._shared = SharedMemory(create=True, size=size)
            self._blocks = make_iovec(self._shared, self._mount)
            self._shared.unlink()
            self.memory = cast(memoryview, self._shared.buf)

    def read(self, pieces: Sequence[Piece], moved: Callable[[], None]) -> list[int]:
        return self._move(pieces, moved, reading=True)

    def write(self, pieces: Sequence[Piece], moved: Callable[[], None]) -> list[int]:
        return self._move(pieces, moved, reading=False)

    def close(self) -> None:
        self._release()
        self._rings.clear()

    def _move(self, pieces: Sequence[Piece], moved: Callable[[], None], reading: bool) -> list[int]:
        results: list[int] = []
        ring = self._rings[reading]
        for first in range(0, len(pieces), _ENTRIES):
            some = pieces[first : first + _ENTRIES]
            for number, (offset, start, size) in enumerate(some):
                block = self._blocks[start : start + size]
                ring.prepare(block, reading, self._file, offset, userdata=number)
            ended = ring.submit().wait(min_results=len(some))  # the caller gives up
            moved()
            sizes = {one.userdata: int(one.result) for one in ended}
            results += [sizes.get(number, -1) for number in range(len(some))]
        return results

    def _release(self) -> None:
        if self._shared is not None:
            del self._blocks
            self.memory = memoryview(b"")
            self._shared.close()
            self._shared = None
