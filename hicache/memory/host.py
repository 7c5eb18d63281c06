"""Memory of this machine: what is available, buffers, and registration with an accelerator.

Linux overcommits memory and may kill the process later, so a successful allocation does not prove
that there is enough: `enough` asks what is available before, one process at a time, and `allocate`
takes every page at once, so the next process is told what is left.

Memory is registered in segments. A copy that crosses a border of two registrations fails or is slow
without notice, so no border lies inside a contiguous run of a page, or inside a page of the
operating system.
"""

import contextlib
import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from hicache.core.errors import CallerError

from .layouts import Bytes

GRANULE = mmap.PAGESIZE
DEFAULT_BYTES = 4 << 30  # of a segment
_GROUPS = Path("/sys/fs/cgroup")
_LIMITS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
_LOCK = Path(tempfile.gettempdir()) / f"hicache-memory-{os.getuid()}"


def available_bytes() -> int | None:
    """Bytes that this process can allocate without swapping, under the limits of the machine and of
    its control group. None if the system does not say.
    """
    known = [left for left in (_machine_left(), _group_left()) if left is not None]
    return min(known) if known else None


@contextlib.contextmanager
def enough(wanted: dict[str, int]) -> Iterator[None]:
    """No other process of this user, as another rank, asks for memory in such a block: what it
    allocates counts for the next. wanted: bytes, by name. Raises CallerError, with the numbers, if
    these buffers together exceed the available memory."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without the file, this process asks alone
            file = os.open(_LOCK, os.O_CREAT | os.O_RDWR, 0o600)  # nobody else may hold it
            lock = stack.enter_context(open(file, "ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        left = available_bytes()
        if left is not None and sum(wanted.values()) > left:
            raise CallerError(_refusal(wanted, f"the system has {left} available"))
        yield


def allocate(name: str, size: int) -> Bytes:
    """A zeroed buffer, uint8[size], aligned to a page of the operating system. Raises CallerError
    if there is too little memory."""
    if size == 0:
        return np.empty(0, dtype=np.uint8)
    try:
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError):
        raise CallerError(_refusal({name: size}, "the system refused")) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages refuses
            region.madvise(mmap.MADV_HUGEPAGE)
    buffer = np.frombuffer(region, dtype=np.uint8)
    buffer[::GRANULE] = 0
    return buffer


def _refusal(wanted: dict[str, int], text: str) -> str:
    parts = ", ".join(f"{name} {size}" for name, size in wanted.items() if size)
    total = sum(wanted.values())
    return f"memory: expected room for {total} bytes ({parts}), and {text}; ask for fewer pages"


def _machine_left() -> int | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _group_left() -> int | None:
    """The least memory left in the control groups of this process, of version 2 or 1. Memory that
    can be reclaimed counts as left."""
    try:
        entries = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    left: list[int] = []
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers in ("", "memory"):
            root = _GROUPS / controllers
            folder = root / path.lstrip("/")
            for at in (folder, *folder.parents):
                left += _limit_of(at)
                if at == root:
                    break
    return max(0, min(left)) if left else None


def _limit_of(folder: Path) -> list[int]:
    for limit, current, reclaimed in _LIMITS:
        try:
            most = (folder / limit).read_text().strip()
            used = (folder / current).read_text()
            lines = (folder / "memory.stat").read_text().splitlines()
        except OSError:
            continue
        kept = dict(line.split(" ", 1) for line in lines).get(reclaimed, "0")
        return [] if most == "max" else [int(most) - int(used) + int(kept)]
    return []


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
    if error is not None and first is None:
        raise error


class Registrar(Protocol):
    """Registers memory for asynchronous copies. `register` and `unregister` return 0 or an error
    code. Addresses and sizes are in bytes."""

    def register(self, address: int, size: int) -> int: ...

    def unregister(self, address: int) -> int: ...

    def refusal(self, code: int) -> str:
        """What the device did when `register` returned this code, and what to do about it."""


class Registration:
    """The registered memory of one buffer. `close` unregisters it."""

    def __init__(self, name: str, buffer: Bytes, segment: int, registrar: Registrar) -> None:
        """Registers each segment of so many bytes once; 0 for one segment. On failure raises
        CallerError and leaves none registered."""
        self._name = name
        self._registrar = registrar
        self._addresses: list[int] = []
        base, total = buffer.ctypes.data, buffer.nbytes
        for start in range(0, total, segment or max(total, 1)):
            size = min(segment or total, total - start)
            code = registrar.register(base + start, size)
            if code != 0:
                refused = CallerError(
                    f"{name}: expected to register {size} of {total} bytes from byte {start} on, "
                    f"but the device {registrar.refusal(code)}"
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
