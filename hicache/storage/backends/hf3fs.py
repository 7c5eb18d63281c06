"""3FS: values in one large file on a 3FS mount, under the index of the file backend.

    hf3fs:DIR?size=BYTES&index=DIR&durable=yes&engine=pread

The index is a folder as that of `file:` without data. `index` names it, on a local disk; if it
is left out it is DIR itself, for trying it out on a local disk. With `engine=usrbio` bytes go past
the kernel. I/O runs on threads that are given up on (`calls`), through memory of their own, so a
mount that hangs costs a call its time-out, and touches nobody's memory later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, cast

import numpy as np

from hicache.core.errors import CallerError

from ..address import in_folder
from ..base import Address, Status, StorageOptions, Value, gather, scatter, step, tell
from ..calls import Call, GivenUp, Workers
from ..file_index import BLOCK, FREE, Data, Jobs, Row, Run, allocate, move, refused
from .file import FileStore

SUMMARY = "one large file, for 3FS and other file systems: hf3fs:DIR"

_ENTRIES = 256  # of a ring: pieces under way


class Lane:
    """What one thread moves bytes with: an open file, and memory of its own."""

    def __init__(self, path: Path) -> None:
        self.memory = memoryview(b"")
        self.file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def reserve(self, size: int) -> None:
        """Make room for so many bytes. What was in the memory is lost."""
        if size > self.memory.nbytes:
            self.memory = np.empty(size, np.uint8).data

    def move(self, row: Row, reading: bool) -> Status:
        """Read a value into the memory, or write it from there."""
        return move(self.file, row, (self.memory[: row.length],), reading)

    def close(self) -> None:
        os.close(self.file)


class UsrbioLane(Lane):
    """USRBIO, through the package hf3fs_fuse: memory that the daemon of 3FS knows, and a ring for
    each direction. Never run on a cluster; its calls follow the published interface."""

    def __init__(self, path: Path) -> None:
        io: Any = import_module("hf3fs_fuse.io")  # builds inside the sources of 3FS alone

        super().__init__(path)
        self._io, self._mount = io, io.extract_mount_point(str(path))
        io.register_fd(self.file)
        self._shared: SharedMemory | None = None
        self._rings = {
            reading: io.make_ioring(self._mount, _ENTRIES, for_read=reading, timeout=1, numa=-1)
            for reading in (True, False)
        }

    def reserve(self, size: int) -> None:
        if size > self.memory.nbytes:
            self._release()
            self._shared = SharedMemory(create=True, size=size)
            self._blocks: Any = self._io.make_iovec(self._shared, self._mount)
            self._shared.unlink()
            self.memory = cast(memoryview, self._shared.buf)

    def move(self, row: Row, reading: bool) -> Status:
        ring, start, runs = self._rings[reading], 0, row.runs
        for at in range(0, len(runs), _ENTRIES):
            sizes = [run.blocks * BLOCK for run in runs[at : at + _ENTRIES]]
            sizes[-1] -= max(0, start + sum(sizes) - row.length)
            for number, size in enumerate(sizes):
                block, offset = self._blocks[start : start + size], runs[at + number].start * BLOCK
                ring.prepare(block, reading, self.file, offset, userdata=number)
                start += size
            for ended in ring.submit().wait(min_results=len(sizes)):
                if ended.result < 0:
                    return refused(OSError(-ended.result, os.strerror(-ended.result)))
                if ended.result < sizes[ended.userdata]:
                    return Status.CORRUPT
            step()
        return Status.DONE

    def close(self) -> None:
        self._release()
        self._rings.clear()
        self._io.deregister_fd(self.file)
        super().close()

    def _release(self) -> None:
        if self._shared is not None:
            del self._blocks
            self.memory = memoryview(b"")
            self._shared.close()
            self._shared = None


LANES = {"pread": Lane, "usrbio": UsrbioLane}


class BigFile(Data):
    """A file of one size, whose bytes are moved by threads with a lane each."""

    def __init__(self, path: Path, lane: type[Lane], size_bytes: int, timeout_s: float) -> None:
        super().__init__(path)
        self.first = (size_bytes // BLOCK, FREE)
        self._timeout_s, self._sparse = timeout_s, lane is UsrbioLane
        self._workers: Workers[Lane] = Workers("hf3fs", lambda: lane(path), Lane.close)

    def open(self) -> bool:
        """3FS allocates blocks when they are written."""
        self.path.parent.mkdir(exist_ok=True)
        if self.path.exists():
            return False
        size_bytes = self.first[0] * BLOCK
        if self._sparse:
            with self.path.open("wb") as file:
                file.truncate(size_bytes)
        else:
            allocate(self.path, size_bytes)
        return True

    def is_there(self) -> bool:
        """The mount may hang."""
        return True

    def punch(self, run: Run) -> bool:
        return False

    def close(self) -> None:
        self._workers.close(self._timeout_s)

    def move(
        self, jobs: Jobs, reading: bool, durable: bool, late: Callable[[], None]
    ) -> list[Status] | None:
        def job(lane: Lane, call: Call) -> list[Status]:
            statuses = [_move(lane, call, *one, reading) for one in jobs]
            if durable:
                os.fsync(lane.file)
            return statuses

        try:
            return self._workers.run(job, self._timeout_s, late)
        except GivenUp as error:
            tell(error)
            return None
        except OSError as error:
            return [refused(error)] * len(jobs)


def _move(lane: Lane, call: Call, row: Row, value: Value, reading: bool) -> Status:
    """Read or write one value."""
    lane.reserve(row.length)
    memory = lane.memory[: row.length]
    if not reading:
        with call.delivering():
            gather(value, memory)
    status = lane.move(row, reading)
    if reading:
        with call.delivering():
            scatter(memory, value)
    return status


def open_storage(address: Address, options: StorageOptions) -> Hf3fs:
    """Open a file and its index, or make them. Raises CallerError."""
    where, options = in_folder(address, options, "index", "engine")
    engine = where.query.get("engine", "pread")
    if engine not in LANES:
        raise CallerError(f"engine: expected one of {', '.join(LANES)}, found {engine[:40]!a}")
    if engine == "usrbio" and find_spec("hf3fs_fuse") is None:
        raise CallerError("engine: expected the package hf3fs_fuse; build it, or use engine=pread")
    return Hf3fs(Path(where.path), Path(where.query.get("index", where.path)), engine, options)


class Hf3fs(FileStore):
    """An open file. size_bytes of the options: of a new one."""

    version = 103

    def __init__(self, folder: Path, index: Path, engine: str, options: StorageOptions) -> None:
        self._folder, self._engine = folder, engine
        there = (folder / "data").exists()
        size = (folder / "data").stat().st_size if there else options.size_bytes // BLOCK * BLOCK
        if not size or (options.size_bytes and size != options.size_bytes // BLOCK * BLOCK):
            expected = f"{size:,} bytes, as {folder} has" if there else "the size of a new file"
            raise CallerError(f"storage_size: expected {expected}, found {options.size_bytes:,}")
        super().__init__(index, replace(options, size_bytes=size))

    def _data(self) -> BigFile:
        options, lane = self._options, LANES[self._engine]
        return BigFile(self._folder / "data", lane, options.size_bytes, options.timeout_s)
