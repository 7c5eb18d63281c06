"""3FS: values in one large file on a 3FS mount, under the index of the file backend.

    hf3fs:DIR?size=BYTES&index=DIR&durable=yes

The index is a folder as that of `file:` without data. `index` names it, on a local disk; if it
is left out it is DIR itself, for trying it out on a local disk. I/O runs on threads that are given
up on (`calls`), through memory of their own, so a mount that hangs costs a call its time-out, and
touches nobody's memory later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hicache.core.errors import CallerError

from ..address import Folder, in_folder
from ..base import Address, Status, StorageOptions, gather, scatter
from ..calls import Call, Workers
from ..file_index import BLOCK, FREE, Data, Jobs, Run, allocate, move, refused
from .file import FileStore

SUMMARY = "one large file, for 3FS and other file systems: hf3fs:DIR"


class BigFile(Data):
    """A file of one size, which each thread opens, and whose bytes it moves through memory of its
    own."""

    def __init__(self, path: Path, size_bytes: int, timeout_s: float) -> None:
        super().__init__(path)
        self.first = (size_bytes // BLOCK, FREE)
        self._timeout_s = timeout_s
        flags = os.O_RDWR | os.O_CLOEXEC
        self._workers: Workers[int] = Workers("hf3fs", lambda: os.open(path, flags), os.close)

    def open(self) -> bool:
        self.path.parent.mkdir(exist_ok=True)
        if self.path.exists():
            return False
        allocate(self.path, self.first[0] * BLOCK)
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
        def job(file: int, call: Call) -> list[Status]:
            memory = np.empty(max((row.length for row, _ in jobs), default=0), np.uint8).data
            statuses = list[Status]()
            for row, value in jobs:
                part = memory[: row.length]
                if not reading:
                    with call.delivering():
                        gather(value, part)
                statuses.append(move(file, row, (part,), reading))
                if reading:
                    with call.delivering():
                        scatter(part, value)
            if durable:
                os.fsync(file)
            return statuses

        try:
            return self._workers.run(job, self._timeout_s, None, late)
        except OSError as error:
            return [refused(error)] * len(jobs)


def open_storage(address: Address, options: StorageOptions) -> Hf3fs:
    """Open a file and its index, or make them. Raises CallerError."""
    where = in_folder(address, options, "index")
    return Hf3fs(Path(where.query.get("index", where.path)), where, options)


class Hf3fs(FileStore):
    """An open file. The size of the address is that of a new one."""

    version = 103

    def __init__(self, path: Path, where: Folder, options: StorageOptions) -> None:
        self._file = Path(where.path) / "data"
        size = where.size_bytes // BLOCK * BLOCK
        there = self._file.exists()
        self._size = self._file.stat().st_size if there else size
        if not self._size or size not in (0, self._size):
            file = f"{self._size:,} bytes, as {where.path} has" if there else "that of a new file"
            raise CallerError(f"hf3fs: size: expected {file}, found {where.size_bytes:,}")
        super().__init__(path, where._replace(size_bytes=self._size), options)

    def _data(self) -> BigFile:
        return BigFile(self._file, self._size, self._options.timeout_s)
