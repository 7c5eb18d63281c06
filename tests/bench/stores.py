"""What an embedded store of pages could be, measured: `python -m tests.bench.stores [FOLDER]`.

Every candidate writes batches of pages with a checksum each, and reads them back with the checksum
compared, beside a plain loop over a preallocated file without checksums. All run one after the
other in each round. Times are of the processor, since everything stays in the page cache, and what
else a machine does would distort the wall clock more than the candidates differ. The table has the
medians of rounds: MiB/s written, MiB/s read, and the speed of both together as a share of the plain
loop's in the same round. Not a test: nothing here asserts a time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import xxhash

from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions
from hicache.storage.keys import page_keys
from hicache.storage.verified import Verified

BATCH = 32  # pages
TOTAL = 64 << 20  # bytes of each size
SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
ROUNDS = 3
_RECORD = struct.Struct("<32sQ16s")


class Candidate:
    """A store for one run: `write` and `read` take a batch of numbered pages."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        self.folder = folder
        self.size = size
        self.count = count

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        raise NotImplementedError

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Give back files."""


def sealed(number: int, page: memoryview) -> bytes:
    return _RECORD.pack(name_of(number).encode()[:32], page.nbytes, xxhash.xxh3_128_digest(page))


def check(number: int, page: memoryview, header: bytes | memoryview) -> None:
    if header != sealed(number, page):
        raise SystemExit(f"page {number} is not what was written")


def name_of(number: int) -> str:
    return xxhash.xxh3_128_hexdigest(number.to_bytes(8, "little"))


class Plain(Candidate):
    """The yardstick: one file whose blocks were reserved, pwrite and pread, no checksums."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder, size, count)
        self.file = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self.file, 0, size * count)

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            os.pwrite(self.file, page, number * self.size)

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            os.preadv(self.file, [page], number * self.size)

    def close(self) -> None:
        os.close(self.file)


class Slab(Plain):
    """Slots of one size in a reserved file, header and page together; the index is in memory."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder, size + 4096, count)
        self.headers = [bytearray(_RECORD.size) for _ in range(BATCH)]

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            os.pwritev(self.file, [sealed(number, page), page], number * self.size)

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page, header in zip(numbers, pages, self.headers, strict=True):
            os.preadv(self.file, [header, page], number * self.size)
            check(number, page, header)


class Segments(Candidate):
    """Appended records in files of 64 MiB; the index is in memory."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder, size, count)
        self.files: list[int] = []
        self.end = 1 << 40
        self.where: dict[int, tuple[int, int]] = {}
        self.header = bytearray(_RECORD.size)

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        parts: list[Any] = []
        if self.end > 64 << 20:
            path = self.folder / f"segment-{len(self.files)}"
            self.files.append(os.open(path, os.O_RDWR | os.O_CREAT))
            self.end = 0
        start = self.end
        for number, page in zip(numbers, pages, strict=True):
            self.where[number] = self.files[-1], self.end
            parts += (sealed(number, page), page)
            self.end += _RECORD.size + page.nbytes
        if os.pwritev(self.files[-1], parts, start) != self.end - start:
            raise SystemExit("a short write")

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            file, start = self.where[number]
            os.preadv(file, [self.header, page], start)
            check(number, page, self.header)

    def close(self) -> None:
        for file in self.files:
            os.close(file)


class Files(Candidate):
    """A file per page in 256 folders: a temporary file, then a rename."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder, size, count)
        for number in range(256):
            (folder / f"{number:02x}").mkdir()
        self.temporary = f"{folder}/temporary"
        self.header = bytearray(_RECORD.size)

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            file = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.writev(file, [sealed(number, page), page])
            os.close(file)
            os.rename(self.temporary, self.path(number))

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            file = os.open(self.path(number), os.O_RDONLY)
            os.readv(file, [self.header, page])
            os.close(file)
            check(number, page, self.header)

    def path(self, number: int) -> str:
        name = name_of(number)
        return f"{self.folder}/{name[:2]}/{name}"


class ReservedFiles(Files):
    """The same, and the blocks of each file are reserved before it is written."""

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        for number, page in zip(numbers, pages, strict=True):
            file = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.posix_fallocate(file, 0, _RECORD.size + page.nbytes)
            os.writev(file, [sealed(number, page), page])
            os.close(file)
            os.rename(self.temporary, self.path(number))


class Lmdb(Candidate):
    """lmdb without sync, one transaction for each batch; a read copies out of the map."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder, size, count)
        lmdb: Any = importlib.import_module("lmdb")
        self.base = lmdb.open(str(folder), map_size=4 * size * count + (64 << 20), sync=False)

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        with self.base.begin(write=True, buffers=True) as transaction:
            for number, page in zip(numbers, pages, strict=True):
                # One value is one buffer, so header and page are two values.
                transaction.put(name_of(number).encode() + b"h", sealed(number, page))
                transaction.put(name_of(number).encode(), page)

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        with self.base.begin(buffers=True) as transaction:
            for number, page in zip(numbers, pages, strict=True):
                page[:] = transaction.get(name_of(number).encode())
                check(number, page, transaction.get(name_of(number).encode() + b"h"))

    def close(self) -> None:
        self.base.close()


class FileBackend(Candidate):
    """What was chosen and built: `file:`, whole, with its checks (docs/storage.md)."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        super().__init__(folder, size, count)
        self.store = Verified(open_storage(parse(f"file:{folder}"), StorageOptions()))

    def write(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        self.done(self.store.write(self.keys(numbers), [(page,) for page in pages]))

    def read(self, numbers: Sequence[int], pages: Sequence[memoryview]) -> None:
        self.done(self.store.read(self.keys(numbers), [(page,) for page in pages]))

    def close(self) -> None:
        self.store.close()

    def keys(self, numbers: Sequence[int]) -> list[str]:
        digests = [hashlib.sha256(number.to_bytes(8, "little")).digest() for number in numbers]
        return page_keys("0" * 64, "kv", "0of1", digests)

    def done(self, found: Sequence[Status]) -> None:
        if set(found) != {Status.DONE}:
            raise SystemExit(f"expected every page to be done, found {set(found)}")


CANDIDATES: dict[str, type[Candidate]] = {
    "plain loop": Plain,
    "slab": Slab,
    "segments": Segments,
    "files": Files,
    "files, reserved": ReservedFiles,
    "file: (chosen)": FileBackend,
} | ({"lmdb": Lmdb} if importlib.util.find_spec("lmdb") else {})


def speeds(
    kind: Callable[[Path, int, int], Candidate], root: str, size: int
) -> tuple[float, float]:
    """MiB/s of writing and of reading TOTAL bytes, or one batch if that is more."""
    count = max(BATCH, TOTAL // size)
    block = memoryview(bytearray(os.urandom(size) * BATCH))
    pages = [block[start : start + size] for start in range(0, block.nbytes, size)]
    folder = Path(tempfile.mkdtemp(dir=root))
    try:
        store = kind(folder, size, count)
        batches = [range(first, first + BATCH) for first in range(0, count, BATCH)]
        write = _timed(lambda: [store.write(numbers, pages) for numbers in batches])
        read = _timed(lambda: [store.read(numbers, pages) for numbers in batches])
        store.close()
    finally:
        shutil.rmtree(folder)
    moved = count * size / (1 << 20)
    return moved / write, moved / read


def _timed(work: Callable[[], Iterable[None]]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    print(f"| MiB/s written, read | {' | '.join(f'{size >> 10} KiB' for size in SIZES)} |")
    print("|---" * (len(SIZES) + 1) + "|")
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for size in SIZES:
            for name, kind in CANDIDATES.items():
                found.setdefault((name, size), []).append(speeds(kind, root, size))
    for name in CANDIDATES:
        cells = []
        for size in SIZES:
            runs, plain = found[name, size], found["plain loop", size]
            write, read = (statistics.median(column) for column in zip(*runs, strict=True))
            share = statistics.median(
                sum(1 / speed for speed in yardstick) / sum(1 / speed for speed in run)
                for run, yardstick in zip(runs, plain, strict=True)
            )
            cells.append(f"{write:,.0f}, {read:,.0f} ({share:.0%})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
