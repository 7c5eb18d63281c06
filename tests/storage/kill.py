"""Kills real writing processes at drawn moments: `python -m tests.storage.kill --points 10000`.

Two processes write to one folder: new pages, pages that exist, batches of several sizes. Each says
on a pipe what it was promised (`DONE`). Both get SIGKILL at a drawn moment. Then the folder is
opened and read whole: every promised page must be there, every page that is served must be one that
was written, and nothing may have to be found by its checksum. Every other folder is bounded, so
that eviction goes on while writers die; there, pages may be missing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions
from hicache.storage.verified import Verified

SIZES = (200, 5000, 40_000, 120_000)
LINE = 1000  # bytes of a page that repeat
KEYS = 60  # of each writer
POINTS_PER_FOLDER = 40
LONGEST_S = 0.02  # until the kill; opening takes about 5 ms
BOUND = 2 << 20
_PROMISE = struct.Struct("<II")  # number of a key, version


def key_of(number: int) -> str:
    return f"{'0' * 64}/kv/0of1/{hashlib.sha256(number.to_bytes(4, 'little')).hexdigest()}"


def page_of(number: int, version: int) -> bytes:
    """What a version of a page holds: no two have a block in common."""
    seed = struct.pack("<II", number, version)
    size = SIZES[number % len(SIZES)]
    return seed + hashlib.shake_128(seed).digest(LINE) * (size // LINE + 1)


def size_of(number: int) -> int:
    return 8 + LINE * (SIZES[number % len(SIZES)] // LINE + 1)


def opened(folder: Path, bounded: bool) -> Verified:
    options = StorageOptions(size_bytes=BOUND if bounded else 0, timeout_s=20)
    return Verified(open_storage(parse(f"file:{folder}"), options))


def write_until_killed(folder: Path, bounded: bool, writer: int, first: int, pipe: int) -> None:
    """What a writing process does. first: the version that it begins with."""
    drawn = random.Random(writer << 20 | first)
    store = opened(folder, bounded)
    version = first
    while True:
        version += 1
        numbers = [
            writer * KEYS + number for number in drawn.sample(range(KEYS), drawn.randint(1, 6))
        ]
        pages = [(memoryview(page_of(number, version)),) for number in numbers]
        for number, status in zip(
            numbers, store.write([key_of(number) for number in numbers], pages), strict=True
        ):
            if status is Status.DONE:
                os.write(pipe, _PROMISE.pack(number, version))
            elif status is not Status.FULL:
                print(f"a write was answered {status}", file=sys.stderr)
                os._exit(3)


class Victims:
    """A folder, the promises that were made about it, and what was found in it."""

    def __init__(self, root: Path, bounded: bool, drawn: random.Random) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=root)) / "store"
        self.bounded = bounded
        self.drawn = drawn
        self.promised: dict[int, int] = {}  # number of a key: the last version that was promised
        self.first = 0
        self.found: Counter[str] = Counter()

    def kill_once(self) -> None:
        children = []
        for writer in (0, 1):
            reader, pipe = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                try:
                    write_until_killed(self.folder, self.bounded, writer, self.first, pipe)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(4)
            os.close(pipe)
            children.append((child, reader))
        self.drawn.shuffle(children)
        promises = []
        for child, reader in children:
            promises.append(self._some_promises(reader))
            time.sleep(self.drawn.uniform(0, LONGEST_S))
            os.kill(child, signal.SIGKILL)
        for (child, reader), text in zip(children, promises, strict=True):
            with open(reader, "rb") as stream:
                text += stream.read()
            _, code = os.waitpid(child, 0)
            self.found["a writer failed by itself"] += not os.WIFSIGNALED(code)
            for number, version in _PROMISE.iter_unpack(text):
                self.promised[number] = version
        self.first += 10_000
        self.found["kills"] += len(children)
        self.judge()

    def _some_promises(self, reader: int) -> bytes:
        """Wait for a drawn number of them. Half of the time for none: the writer then is killed
        while it opens the folder or writes its first pages."""
        text, count = b"", self.drawn.choice((0, self.drawn.randint(1, 25)))
        while len(text) < count * _PROMISE.size and (more := os.read(reader, _PROMISE.size)):
            text += more
        return text

    def judge(self) -> None:
        store = opened(self.folder, self.bounded)
        numbers = list(range(2 * KEYS))
        pages = [memoryview(bytearray(size_of(number))) for number in numbers]
        found = store.read([key_of(number) for number in numbers], [(page,) for page in pages])
        for number, status, page in zip(numbers, found, pages, strict=True):
            self.found[str(status)] += 1
            last = self.promised.get(number)
            if status is Status.DONE:
                version = struct.unpack_from("<II", page)[1]
                self.found["wrong bytes"] += bytes(page) != page_of(number, version)
                self.found["older than promised"] += last is not None and version < last
                self.promised[number] = version  # what was served must stay
            elif last is not None and self.bounded:
                del self.promised[number]
            else:
                self.found["promised and lost"] += last is not None
        left = sorted(one.name for one in (self.folder / "owners").iterdir())
        self.found["left by the dead"] += len(left) != 1
        store.close()


BAD = (
    *("wrong bytes", "older than promised", "promised and lost", "corrupt", "failed"),
    *("left by the dead", "a writer failed by itself"),
)


def run(root: Path, points: int, seed: int, told: bool = False) -> Counter[str]:
    """Kill at this many points or a few more, one process at each; what was found."""
    drawn = random.Random(seed)
    total: Counter[str] = Counter()
    done = 0
    while done < points:
        victims = Victims(root, bounded=bool(done // POINTS_PER_FOLDER % 2), drawn=drawn)
        while done % POINTS_PER_FOLDER or not victims.found:
            victims.kill_once()
            done += 2
            if done >= points:
                break
        total += victims.found
        shutil.rmtree(victims.folder.parent)
        if told and done % 1000 == 0:
            print(f"{done} points, {sum(total[name] for name in BAD)} bad", file=sys.stderr)
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=tempfile.gettempdir())
    options = parser.parse_args()
    found = run(options.folder, options.points, options.seed, told=True)
    for name in ("kills", "done", "missing", *BAD):
        print(f"{name}: {found[name]}")
    raise SystemExit(any(found[name] for name in BAD))


if __name__ == "__main__":
    main()
