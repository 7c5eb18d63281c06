"""What histories are played on: stores on media that refuse, fill up and die.

A subject is a store with its medium. Its faults are either injected (calls of `os` and of SQLite
are refused at drawn moments) or real (a small file system is filled by others).
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hicache.storage.address import open_storage, parse
from hicache.storage.backends import file as file_backend
from hicache.storage.base import Storage, StorageOptions
from hicache.storage.checksummed import HEADER_BYTES

SLOT = 4096
LIMITS = (6, 7, 16, 17, 40)  # slots
CALLS = ("pwritev", "pwrite", "write", "posix_fallocate", "fdatasync", "open", "unlink", "rename")
CHANGES = ("BEGIN", "COMMIT", "UPDATE", "INSERT", "DELETE", "PRAGMA wal")
SQL_CODES = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EROFS: sqlite3.SQLITE_READONLY}


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own in memory. Raises OSError where it cannot be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise OSError("a file system in memory cannot be mounted here (root may)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Shim:
    """Stands between the store and the system while it is installed. rule: is told the name of each
    call that changes something, and raises what it refuses. short: reads and writes move a part."""

    def __init__(self) -> None:
        self.rule: Callable[[str], None] = lambda name: None
        self.short: random.Random | None = None
        self._real: dict[str, Any] = {name: getattr(os, name) for name in (*CALLS, "preadv")}
        self._connection = file_backend._connection

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, self._wrapped(name))
        os.preadv = self._read  # type: ignore[assignment]
        shim = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *items: Any) -> sqlite3.Cursor:
                if sql.startswith(CHANGES):
                    shim.rule("sql")
                return super().execute(sql, *items)

            def executemany(self, sql: str, *items: Any) -> sqlite3.Cursor:
                shim.rule("sql")
                return super().executemany(sql, *items)

        def connection(name: str, timeout_s: float, uri: bool = False) -> sqlite3.Connection:
            return sqlite3.connect(
                name,
                timeout=timeout_s,
                isolation_level=None,
                check_same_thread=False,
                factory=Connection,
                uri=uri,
            )

        file_backend._connection = connection

    def remove(self) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        file_backend._connection = self._connection

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(*items: Any, **named: Any) -> Any:
            if name != "open" or items[1] & (os.O_CREAT | os.O_WRONLY):
                self.rule(name)
            if self.short and name in ("pwritev", "pwrite"):
                file, what, at = items
                part = self._part(what[0] if name == "pwritev" else what, self.short)
                return self._real["pwrite"](file, part, at)
            return real(*items, **named)

        return call

    def _read(self, file: int, buffers: Sequence[memoryview], at: int) -> int:
        views = [self._part(buffers[0], self.short)] if self.short else buffers
        return int(self._real["preadv"](file, views, at))

    def _part(self, buffer: memoryview, drawn: random.Random) -> memoryview:
        part = memoryview(buffer).cast("B")
        return part[: drawn.randint(1, max(1, part.nbytes))]


class Fault(NamedTuple):
    """Something that a medium does for a while. opens: the store can be opened all the same.
    hangs: calls are given up, and may be carried out later."""

    name: str
    lasts: Callable[[random.Random], AbstractContextManager[None]]
    opens: bool = False
    hangs: bool = False


def refuses(shim: Shim, code: int) -> Fault:
    """Calls fail with a code, all of them or some."""

    @contextmanager
    def lasts(drawn: random.Random) -> Iterator[None]:
        chance = drawn.choice((0.05, 0.3, 1.0))
        only = drawn.choice(((), CALLS, ("sql",), ("pwritev", "pwrite")))

        def rule(name: str) -> None:
            if (not only or name in only) and drawn.random() < chance:
                raise refusal(name, code)

        shim.rule = rule
        yield
        shim.rule = lambda name: None

    return Fault(errno.errorcode[code], lasts)


def shortens(shim: Shim) -> Fault:
    @contextmanager
    def lasts(drawn: random.Random) -> Iterator[None]:
        shim.short = drawn
        yield
        shim.short = None

    return Fault("short writes", lasts, opens=True)


def fills(folder: Path) -> Fault:
    """Others fill a small file system to the brim, or nearly."""

    @contextmanager
    def lasts(drawn: random.Random) -> Iterator[None]:
        others = folder / "others"
        with others.open("wb", buffering=0) as file:
            with suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass
            left = drawn.choice((0, 0, 8192, 60_000, 300_000))
            file.truncate(max(0, file.tell() - left))
        yield
        others.unlink()

    return Fault("full disk", lasts, opens=True)


def refusal(name: str, code: int) -> Exception:
    if name != "sql":
        return OSError(code, os.strerror(code))
    error = sqlite3.OperationalError(os.strerror(code))
    error.sqlite_errorcode = SQL_CODES.get(code, sqlite3.SQLITE_IOERR_WRITE)
    return error


@dataclass
class Subject:
    """A store and its medium. size_bytes: its limit, 0 for none. disk: a small one bounds it.
    ordered: it evicts what was used least recently. pages: how many there may be. weights: of the
    steps of a history. misses: a delete says whether there was something."""

    address: str
    size_bytes: int
    shim: Shim | None
    faults: list[Fault] = field(default_factory=list)
    disk: bool = False
    ordered: bool = True
    pages: tuple[int, ...] = (6, 20, 60)
    weights: tuple[int, ...] = (12, 6, 2, 1, 2, 2, 1, 1, 2)
    misses: bool = True

    def open(self, hasty: bool = False) -> Storage:
        size = f"?size={self.size_bytes}" if self.size_bytes else ""
        return open_storage(parse(self.address + size), StorageOptions(30))

    def capacity(self, sizes: Sequence[int]) -> int:
        """How many of these values it must take together while nothing is wrong."""
        needs = {-(-(size + HEADER_BYTES) // SLOT) * SLOT for size in sizes}
        if self.disk or (self.size_bytes and len(needs) > 1):
            return int(len(sizes) == 1 and not (self.size_bytes and self.size_bytes < max(needs)))
        return min(len(sizes), self.size_bytes // max(needs)) if self.size_bytes else len(sizes)

    def die_after(self, calls: int) -> None:
        assert self.shim is not None
        left = [calls]

        def rule(name: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)

        self.shim.rule = rule

    def close(self) -> None:
        if self.shim is not None:
            self.shim.remove()


def _errors(shim: Shim) -> list[Fault]:
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)
    return [*(refuses(shim, code) for code in codes), shortens(shim)]


def _file(folder: Path, drawn: random.Random) -> Subject:
    size = drawn.choice((0, *LIMITS)) * SLOT + drawn.choice((0, 0, 1, SLOT - 1))
    return _on_shim(f"file:{folder / 'store'}", size if size >= SLOT else 0)


def _hf3fs(folder: Path, drawn: random.Random) -> Subject:
    size = drawn.choice(LIMITS) * SLOT + drawn.choice((0, 1, SLOT - 1))
    return _on_shim(f"hf3fs:{folder / 'store'}", size)


def _on_shim(address: str, size_bytes: int) -> Subject:
    shim = Shim()
    subject = Subject(address, size_bytes, shim, _errors(shim))
    shim.install()
    return subject


Maker = Callable[[Path, random.Random], Subject]


def _on_a_full_disk(make: Maker, folder: Path, drawn: random.Random) -> Subject:
    """`folder` lies on a file system of a few megabytes."""
    subject = make(folder, drawn)
    subject.faults = [fills(folder)]
    subject.disk = make is _file
    return subject


SUBJECTS: dict[str, Maker] = {
    "file": _file,
    "file-full": partial(_on_a_full_disk, _file),
    "hf3fs": _hf3fs,
    "hf3fs-full": partial(_on_a_full_disk, _hf3fs),
}
