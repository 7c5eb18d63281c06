"""The interface of an I/O engine: one open file, and lanes to move bytes through.

Each file of this folder has SUMMARY, one line, and `open_engine(path, size) -> Engine`, which makes
the file, or opens one of this size, and raises OSError. An import that needs a package of its own
stands at the top of such a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

ENGINES = "hicache.storage.engines"


class Piece(NamedTuple):
    """A run of bytes: where in the file, where in the memory of a lane, how many."""

    offset: int
    start: int
    size: int


class Lane(ABC):
    """What one thread moves bytes with: memory that the engine can reach."""

    memory: memoryview

    @abstractmethod
    def reserve(self, size: int) -> None:
        """Make room for so many bytes. What was in the memory is lost."""

    @abstractmethod
    def read(self, pieces: Sequence[Piece], moved: Callable[[], None]) -> list[int]:
        """Read the pieces into the memory. How many bytes each got, or a negative errno. moved: is
        called for each part that was moved."""

    @abstractmethod
    def write(self, pieces: Sequence[Piece], moved: Callable[[], None]) -> list[int]:
        """Write the pieces from the memory, as `read`."""

    @abstractmethod
    def close(self) -> None: ...


class Engine(ABC):
    """One open file of a fixed size."""

    @abstractmethod
    def lane(self) -> Lane: ...

    @abstractmethod
    def sync(self) -> None:
        """What was written survives a power failure. Raises OSError."""

    @abstractmethod
    def close(self) -> None:
        """All lanes are closed before."""
