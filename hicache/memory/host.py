"""Memory of this machine: how much is available, allocation of a buffer, and its NUMA node.

All calls to the operating system about memory are here. Does not know pools; see `pools`.

Linux overcommits memory and may kill the process later, so a successful allocation does not prove
that there is enough, and what was allocated counts as used only when it is touched. So callers
allocate in `room`, which asks what is available beside everything that was promised: the untouched
bytes of the buffers of all processes of this user, which leave their addresses in a folder in
memory. NUMA: `mbind(2)` with
MPOL_BIND before the first access, by its system call number, because Python has no function for it.
If the system is not Linux, or the number is not known for the processor, asking for a node is an
error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

import numpy as np

from hicache.core.errors import CallerError

from .layouts import Bytes

GRANULE = mmap.PAGESIZE
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259}
_MPOL_BIND = 2
_NODES = Path("/sys/devices/system/node/online")
_SHARED = Path("/dev/shm")
_LEAST = 16 << 20  # bytes of buffers that are promised; smaller ones are filled soon
_MOST_TEXT = 1 << 20  # characters of a file of promises
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")
# Control groups, version 2 and version 1: (mount, limit, usage, key in memory.stat)
_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def available_bytes() -> int | None:
    """Bytes that this process can allocate without swapping, under the limits of the machine and of
    its control group. None if the system does not say.
    """
    known = [left for left in (_machine_left(), _group_left()) if left is not None]
    return min(known) if known else None


def check_room(wanted: dict[str, int]) -> None:
    """Raises CallerError, with the numbers, if these buffers together exceed the available memory.
    wanted: bytes, by name."""
    left = available_bytes()
    total = sum(wanted.values())
    promised = _account.untouched() if total >= _LEAST else 0
    if left is not None and total > left - promised:
        taken = f", {promised} of them promised to buffers that are not filled yet"
        raise CallerError(
            _refusal(wanted, f"the system has {left} available{taken if promised else ''}")
        )


@contextmanager
def room(wanted: dict[str, int]) -> Iterator[None]:
    """`check_room`, and what is allocated in the block is promised: no other process or thread is
    told that it is available."""
    total = sum(wanted.values())
    if total < _LEAST:
        check_room(wanted)
        yield
        return
    with _account.lock:
        with _account.alone():
            check_room(wanted)
            _account.expect(total)
        try:
            yield
        finally:
            _account.expect(0)


class _Account:
    """Buffers of this process, by address, and bytes that are about to be allocated. Other
    processes read both: one file for each process, in a folder of this user."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a buffer may be freed at any time
        self._buffers: dict[int, int] = {}
        self._expected = 0
        self._folder = _SHARED / f"hicache-{os.getuid()}" if _SHARED.is_dir() else None

    def forget(self) -> None:
        """What the parent of this process has."""
        self.__init__()  # type: ignore[misc]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process is in such a block."""
        with ExitStack() as opened:
            try:
                if self._folder is not None:
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                    if self._folder.lstat().st_uid != os.getuid():
                        raise PermissionError(self._folder)
                    lock = opened.enter_context(open(self._folder / "lock", "wb"))
                    fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                self._folder = None  # this process counts alone
            yield

    def expect(self, size: int) -> None:
        """So many bytes are about to be allocated."""
        with self.lock:
            self._expected = size
            self._save()

    def add(self, region: mmap.mmap, start: int, size: int) -> None:
        """Promise what was expected, as long as the region lives."""
        with self.lock:
            if self._expected:
                self._expected = max(0, self._expected - size)
                self._buffers[start] = size
                weakref.finalize(region, self._remove, start)
                self._save()

    def untouched(self) -> int:
        """Bytes that are promised and not in use yet, of all processes that can be seen."""
        with self.lock:
            total = self._expected + _untouched("self", self._buffers)
            found = [] if self._folder is None else self._folder.glob("*.*")
            own = _process(os.getpid())
            for file in found:
                if file.name == own:
                    continue
                try:
                    expected, *pairs = map(int, file.read_text()[:_MOST_TEXT].split())
                except (OSError, ValueError):
                    continue
                pid = file.name.partition(".")[0]
                if _process(int(pid)) == file.name:
                    buffers = dict(zip(pairs[::2], pairs[1::2], strict=True))
                    total += expected + _untouched(pid, buffers)
                else:
                    file.unlink(missing_ok=True)  # its process has ended
            return total

    def _remove(self, start: int) -> None:
        with self.lock:
            if self._buffers.pop(start, None) is not None:
                self._save()

    def _save(self) -> None:
        name = _process(os.getpid())
        if self._folder is None or name is None:
            return
        numbers = [self._expected, *chain.from_iterable(self._buffers.items())]
        with contextlib.suppress(OSError):
            if any(numbers):
                draft = self._folder / f"draft-{os.getpid()}"
                draft.write_text(" ".join(map(str, numbers)))
                draft.replace(self._folder / name)
            else:
                (self._folder / name).unlink(missing_ok=True)


def _process(pid: int) -> str | None:
    """A name that no other process of this machine had: its number, and when it began."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return f"{pid}.{stat.rpartition(')')[2].split()[19]}"


def _untouched(process: str, buffers: dict[int, int]) -> int:
    """Bytes of the buffers that the process has not used yet; 0 if the system does not say."""
    if not buffers:
        return 0
    total = over = size = 0
    try:
        with open(f"/proc/{process}/smaps") as lines:
            for line in lines:
                if line.startswith("Rss:"):
                    total += min(over, size - int(line.split()[1]) * 1024)
                elif found := _MAPPING.match(line):
                    start, end = int(found[1], 16), int(found[2], 16)
                    size = end - start
                    over = sum(
                        max(0, min(end, at + length) - max(start, at))
                        for at, length in buffers.items()
                    )
    except OSError:
        return 0
    return max(0, total)


def allocate(name: str, size: int, node: int | None = None) -> Bytes:
    """A zeroed buffer, uint8[size], aligned to a page of the operating system. node: NUMA node.

    Raises CallerError if there is too little memory or if the node cannot be used."""
    if size == 0:
        return np.empty(0, dtype=np.uint8)
    private = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    try:
        region = mmap.mmap(-1, size, **private)
    except (OSError, OverflowError, ValueError):
        raise CallerError(_refusal({name: size}, "the system refused")) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages refuses
            region.madvise(mmap.MADV_HUGEPAGE)
    buffer = np.frombuffer(region, dtype=np.uint8)
    _account.add(region, buffer.ctypes.data, size)
    if node is not None:
        _bind(name, buffer, node)
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


_account = _Account()
os.register_at_fork(after_in_child=_account.forget)


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
    if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * GRANULE
    return None


def _group_left() -> int | None:
    """The least memory left in the control groups of this process. Memory that can be reclaimed
    counts as left."""
    try:
        entries = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    left: list[int] = []
    for entry in entries:
        number, kinds, path = entry.split(":", 2)
        if number != "0" and "memory" not in kinds.split(","):
            continue
        mount, *names = _GROUPS[0 if number == "0" else 1]
        folder = Path(mount) / path.lstrip("/")
        for at in (folder, *folder.parents):
            left += _limit_of(at, *names)
            if at == Path(mount):
                break
    return max(0, min(left)) if left else None


def _limit_of(folder: Path, limit: str, usage: str, inactive: str) -> list[int]:
    try:
        most, used = (folder / limit).read_text().strip(), (folder / usage).read_text().strip()
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return []
    if most == "max":
        return []
    kept = dict(line.split(" ", 1) for line in lines).get(inactive, "0")
    return [int(most) - int(used) + int(kept)]
