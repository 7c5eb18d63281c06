"""How far each job is: a file of one number for each, which workers write and the command reads.

It needs no lock, which a worker that is killed would keep. On another machine the file is not
there, and nothing is written. Does not show anything; see terminal/progress.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Board:
    """path: of the file. jobs: how many numbers it has."""

    path: str
    jobs: int

    def total(self) -> int:
        """The sum of all numbers."""
        return int(np.fromfile(self.path, dtype=np.int64).sum())

    def writer(self, job: int) -> Callable[[int], None]:
        """A function that writes how far this job is."""
        try:
            numbers = np.memmap(self.path, dtype=np.int64, mode="r+")
        except OSError:
            return lambda done: None

        def write(done: int) -> None:
            numbers[job] = done

        return write


@contextmanager
def board(jobs: int) -> Iterator[Board]:
    """A board of zeros, which goes at the end of the block."""
    handle, path = tempfile.mkstemp(prefix="hicache-progress-")
    try:
        os.write(handle, bytes(8 * jobs))
        os.close(handle)
        yield Board(path, jobs)
    finally:
        with suppress(OSError):
            os.unlink(path)
