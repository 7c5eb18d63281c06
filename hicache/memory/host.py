"""Memory of this machine: what is available, buffers and their NUMA node, and registration with an
accelerator.

Linux overcommits memory and may kill the process later, so a successful allocation does not prove
that there is enough: `room` asks what is available before, one process at a time, and `allocate`
takes every page at once, so the next process is told what is left. NUMA: `mbind(2)` with MPOL_BIND
before the first access, by its system call number, because Python has no function for it.

Memory is registered in segments. A copy that crosses a border of two registrations fails or is slow
without notice, so no border lies inside a contiguous run of a page, or inside a page of the
operating system.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from hicache.core.errors import CallerError

from .layouts import Bytes
from .runs import segment_bytes

GRANULE = mmap.PAGESIZE
DEFAULT_BYTES = 4 << 30  # of a segment
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259}
_MPOL_BIND = 2
_NODES = Path("/sys/devices/system/node/online")
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
def room(wanted: dict[str, int]) -> Iterator[None]:
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


def allocate(name: str, size: int, node: int | None = None) -> Bytes:
    """A zeroed buffer, uint8[size], aligned to a page of the operating system. node: NUMA node.

    Raises CallerError if there is too little memory or if the node cannot be used."""
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
    if node is not None:
        _bind(name, buffer, node)
    buffer[::GRANULE] = 0
    return buffer


def numa_nodes() -> tuple[int, ...]:
    """The NUMA nodes that are online, ascending. Empty if the system does not list them."""
    try:
        text = _NODES.read_text().strip()
    except OSError:
        return ()
    nodes: list[int] = []
    for span in text.split(","):
        first, _, last = span.partition("-")
        nodes += range(int(first), int(last or first) + 1)
    return tuple(nodes)


def check_node(node: int | None, name: str = "numa_node") -> None:
    """Raises CallerError for a node to which this system cannot bind memory. None is accepted.
    name: of the setting, for the message."""
    if node is None:
        return
    nodes = numa_nodes()
    if not nodes or not sys.platform.startswith("linux") or platform.machine() not in _MBIND:
        raise CallerError(
            f"{name}: expected none, because {sys.platform} on {platform.machine()} offers no "
            f"way to choose one; found {node}; leave it out"
        )
    if node not in nodes:
        raise CallerError(f"{name}: expected one of {', '.join(map(str, nodes))}, found {node}")


def _bind(name: str, buffer: Bytes, node: int) -> None:
    check_node(node)
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    mask = (ctypes.c_ulong * (node // bits + 1))()
    mask[node // bits] = 1 << node % bits
    libc = ctypes.CDLL(None, use_errno=True)
    # One more than the number of bits, because the kernel subtracts one.
    code = libc.syscall(
        ctypes.c_long(_MBIND[platform.machine()]),
        ctypes.c_void_p(buffer.ctypes.data),
        ctypes.c_ulong(buffer.nbytes),
        ctypes.c_int(_MPOL_BIND),
        mask,
        ctypes.c_ulong(len(mask) * bits + 1),
        ctypes.c_uint(0),
    )
    if code != 0:
        found = errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))
        raise CallerError(
            f"{name}: expected to bind {buffer.nbytes} bytes to NUMA node {node}, but mbind "
            f"returned {found}; leave numa_node out, or allow the call"
        )


def _refusal(wanted: dict[str, int], found: str) -> str:
    parts = ", ".join(f"{name} {size}" for name, size in wanted.items() if size)
    total = sum(wanted.values())
    return f"memory: expected room for {total} bytes ({parts}), and {found}; ask for fewer pages"


def _machine_left() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
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
                for note in getattr(failed, "__notes__", ()):
                    error.add_note(note)
    if error is not None and first is None:
        raise error


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
