"""Registration of host memory in segments: known to the accelerator once, no page in two of them.

Lives here: cutting a buffer and calling whoever registers, with the answer checked. Must not live
here: how memory is registered (devices), or allocation.

A copy that crosses from one registration into the next fails or is silently slow, so a border may
lie neither inside what a page has side by side nor inside a page of the operating system.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hicache.core.errors import CallerError

from .host import GRANULE
from .layouts import Bytes
from .runs import segment_bytes

DEFAULT_BYTES = 4 << 30


class Registrar(Protocol):
    """Makes memory fit for asynchronous copies. Both calls answer 0, or the code of the failure."""

    def register(self, address: int, size: int) -> int: ...

    def unregister(self, address: int) -> int: ...


class Segment(NamedTuple):
    """Bytes [start, start + size) of a buffer."""

    start: int
    size: int


def cut(total: int, run: int, wanted: int = DEFAULT_BYTES) -> tuple[Segment, ...]:
    """Segments of about `wanted` bytes. run: bytes that a page has side by side."""
    if wanted < 1:
        raise CallerError(f"segment_bytes: expected at least 1, found {wanted}")
    step = segment_bytes(run, total, wanted, GRANULE) or total
    return tuple(
        Segment(start, min(step, total - start)) for start in range(0, total, max(step, 1))
    )


class Registration:
    """The segments of one buffer, registered. Closing gives them back, once."""

    def __init__(
        self, name: str, buffer: Bytes, segments: tuple[Segment, ...], registrar: Registrar
    ) -> None:
        """Registers each segment once. Raises CallerError, with nothing registered, on failure."""
        self._name = name
        self._registrar = registrar
        self._addresses: list[int] = []
        base = buffer.ctypes.data
        for number, (start, size) in enumerate(segments):
            code = registrar.register(base + start, size)
            if code != 0:
                self.close()
                raise CallerError(
                    f"{name}: expected to register segment {number + 1} of {len(segments)}, "
                    f"{size} of {buffer.nbytes} bytes, but the device returned {code}; ask for "
                    f"fewer pages, or raise the limit on locked memory (ulimit -l)"
                )
            self._addresses.append(base + start)

    def close(self) -> None:
        """Raises CallerError where the device refuses to let go, after trying every segment."""
        codes = []
        while self._addresses:
            codes.append(self._registrar.unregister(self._addresses.pop()))
        refused = [code for code in codes if code != 0]
        if refused:
            raise CallerError(
                f"{self._name}: expected to unregister {len(codes)} segments, but the device "
                f"returned {refused[0]} to {len(refused)} of them"
            )
