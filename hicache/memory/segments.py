"""Registration of host memory with the accelerator, in segments.

It cuts a buffer into segments, calls the registrar for each, and checks the result. It does not
register memory itself, see `hicache/devices`, or allocate it, see `host`.

A copy that crosses a border of two registrations fails or is slow without notice. So no border lies
inside a contiguous run of a page, or inside a page of the operating system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from hicache.core.errors import CallerError

from .host import GRANULE
from .layouts import Bytes
from .runs import segment_bytes


def try_all(*steps: Callable[[], object], first: BaseException | None = None) -> None:
    """Takes every step that ends something, then raises the first error, which explains the others.
    Later ones are noted on it.

    first: an error that came before. It is noted on, not raised.
    """
    error = first
    for step in steps:
        try:
            step()
        except Exception as failed:
            if error is None:
                error = failed
            else:
                error.add_note(f"then also {type(failed).__name__}: {failed}")
                for note in getattr(failed, "__notes__", ()):
                    error.add_note(note)
    if error is not None and first is None:
        raise error


DEFAULT_BYTES = 4 << 30


class Registrar(Protocol):
    """Registers memory for asynchronous copies. `register` and `unregister` return 0 or an error
    code. Addresses and sizes are in bytes."""

    def register(self, address: int, size: int) -> int: ...

    def unregister(self, address: int) -> int: ...

    def refusal(self, code: int) -> str:
        """What the device did when `register` returned this code, and what to do about it."""


class Segment(NamedTuple):
    """Bytes [start, start + size) of a buffer."""

    start: int
    size: int


def cut(total: int, run: int, wanted: int = DEFAULT_BYTES) -> tuple[Segment, ...]:
    """Cut `total` bytes into segments of about `wanted` bytes. run: contiguous bytes of a page.

    Raises CallerError if `wanted` is below 1."""
    if wanted < 1:
        raise CallerError(f"segment_bytes: expected at least 1, found {wanted}")
    step = segment_bytes(run, total, wanted, GRANULE) or total
    return tuple(
        Segment(start, min(step, total - start)) for start in range(0, total, max(step, 1))
    )


class Registration:
    """The registered segments of one buffer. `close` unregisters them."""

    def __init__(
        self, name: str, buffer: Bytes, segments: tuple[Segment, ...], registrar: Registrar
    ) -> None:
        """Registers each segment once. On failure raises CallerError and leaves none registered."""
        self._name = name
        self._registrar = registrar
        self._addresses: list[int] = []
        base = buffer.ctypes.data
        for number, (start, size) in enumerate(segments):
            code = registrar.register(base + start, size)
            if code != 0:
                refused = CallerError(
                    f"{name}: expected to register segment {number + 1} of {len(segments)}, "
                    f"{size} of {buffer.nbytes} bytes, but the device {registrar.refusal(code)}"
                )
                try_all(self.close, first=refused)
                raise refused
            self._addresses.append(base + start)

    def close(self) -> None:
        """Unregister every segment. Raises CallerError if the device refused any of them, after
        trying all."""
        codes = []
        while self._addresses:
            codes.append(self._registrar.unregister(self._addresses.pop()))
        refused = [code for code in codes if code != 0]
        if refused:
            raise CallerError(
                f"{self._name}: expected to unregister {len(codes)} segments, but the device "
                f"returned {refused[0]} to {len(refused)} of them"
            )
