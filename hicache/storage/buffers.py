"""Addresses of buffers, and memory that is registered with a client.

`Registered` knows which memory a client may move bytes to and from by itself. `Staging` is such
memory of our own, for bytes that lie elsewhere.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .base import Value


def address_of(buffer: memoryview) -> int:
    """Where a contiguous buffer begins, also one that is read-only."""
    if not buffer.nbytes:
        return 0
    start: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return start


def size_of(value: Value) -> int:
    return sum(buffer.nbytes for buffer in value)


def batches(values: Sequence[Value], most_bytes: int) -> Iterator[range]:
    """Runs of indices whose values have at most so many bytes together, and at least one value."""
    start = size = 0
    for index, value in enumerate(values):
        more = size_of(value)
        if index > start and size + more > most_bytes:
            yield range(start, index)
            start = index
            size = 0
        size += more
    if start < len(values):
        yield range(start, len(values))


def scatter(source: memoryview, value: Value) -> Value:
    """Copy bytes into the buffers of a value, one after the other. Returns what they leave.
    Raises ValueError if they do not fit."""
    for number, buffer in enumerate(value):
        target = buffer.cast("B")
        some = min(target.nbytes, source.nbytes)
        target[:some], source = source[:some], source[some:]
        if some < target.nbytes:
            return (target[some:], *value[number + 1 :])
    if source.nbytes:
        raise ValueError("the value is longer than its buffers")
    return ()


def gather(value: Value, target: memoryview, start: int) -> int:
    """Copy the buffers of a value, one after the other. Returns where it ends."""
    for buffer in value:
        end = start + buffer.nbytes
        target[start:end] = buffer.cast("B")
        start = end
    return start


class Registered:
    """Blocks of memory by their address. Keeps them alive."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: list[tuple[int, memoryview]] = []

    def add(self, memory: memoryview) -> None:
        start = address_of(memory)
        at = bisect.bisect(self._starts, start)
        self._starts.insert(at, start)
        self._blocks.insert(at, (start + memory.nbytes, memory))

    def holds(self, start: int, size: int) -> bool:
        """Whether all these bytes are registered."""
        at = bisect.bisect(self._starts, start) - 1
        return at >= 0 and start + size <= self._blocks[at][0]


class Staging:
    """Registered memory of one thread. It grows to the largest value. register, unregister: get
    the address and the size."""

    def __init__(
        self, size: int, register: Callable[[int, int], None], unregister: Callable[[int], None]
    ) -> None:
        self._register, self._unregister = register, unregister
        self.memory = memoryview(b"")
        self.start = 0
        self.reserve(size)

    def reserve(self, size: int) -> None:
        """Make room for so many bytes. What was in it is lost."""
        if size > self.memory.nbytes:
            self.close()
            self.memory = np.empty(size, np.uint8).data
            self.start = address_of(self.memory)
            self._register(self.start, size)

    def close(self) -> None:
        if self.memory.nbytes:
            self._unregister(self.start)
            self.memory = memoryview(b"")
