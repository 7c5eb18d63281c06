"""Spoils stored values in every way and reads them: `python -m tests.storage.corrupt`.

A corrupted read that is served as `DONE` counts as served, whatever its bytes are. Half of the
values lie in memory and half in the slots of a file store.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hicache.storage.address import open_storage, parse
from hicache.storage.backends.file import FileStore
from hicache.storage.base import Status, StorageOptions
from hicache.storage.verified import HEADER_BYTES, Verified
from tests.storage.memory_store import MemoryStore

BATCH = 64
SIZES = (16, 500, 4096, 20_000)
SECTORS = (512, 1024, 2048, 4096)


def flip(good: bytes, other: bytes, drawn: random.Random) -> bytes:
    spoilt = bytearray(good)
    bit = drawn.randrange(len(good) * 8)
    spoilt[bit // 8] ^= 1 << bit % 8
    return bytes(spoilt)


def cut(good: bytes, other: bytes, drawn: random.Random) -> bytes:
    return good[: drawn.randrange(len(good))]


def other_page(good: bytes, other: bytes, drawn: random.Random) -> bytes:
    """The whole value of another key, of the same length."""
    return other


def other_payload(good: bytes, other: bytes, drawn: random.Random) -> bytes:
    """The right header before the payload of another key."""
    return good[:HEADER_BYTES] + other[HEADER_BYTES:]


def other_version(good: bytes, other: bytes, drawn: random.Random) -> bytes:
    """The same value as another version of the format would write it."""
    version = drawn.choice((0, 2, drawn.randrange(2, 1 << 32)))
    return good[:8] + struct.pack("<I", version) + good[12:]


def torn(good: bytes, other: bytes, drawn: random.Random) -> bytes:
    """Some sectors are of the value that was there before, or still zero."""
    sector = drawn.choice(SECTORS)
    old = drawn.choice((other, bytes(len(good))))
    spoilt = b"".join(
        drawn.choice((good, old))[at : at + sector] for at in range(0, len(good), sector)
    )
    return old if spoilt == good else spoilt


KINDS: tuple[Callable[[bytes, bytes, random.Random], bytes], ...] = (
    *(flip, cut, other_page, other_payload, other_version, torn),
)


class InFile:
    """Spoils what lies in the slots of a file store. What is cut off is read as what was there."""

    def __init__(self, folder: str) -> None:
        store = open_storage(parse(f"file:{folder}/store"), StorageOptions())
        assert isinstance(store, FileStore)
        self.store = store

    def spoil(self, key: str, spoilt: bytes, whole: int) -> None:
        opened = self.store._use()
        row = opened.index.find([key])[0][key]
        filled = memoryview(spoilt.ljust(whole, b"\0"))
        opened.data.write(row.slot.segment, row.slot.start, [filled])


class InMemory:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def spoil(self, key: str, spoilt: bytes, whole: int) -> None:
        self.store.values[key] = spoilt


def run(reads: int, seed: int, folder: str) -> Counter[str]:
    """How many corrupted reads of each kind there were, and how many were served."""
    drawn = random.Random(seed)
    found: Counter[str] = Counter()
    for medium in (InMemory(), InFile(folder)):
        store = Verified(medium.store)
        keys = [f"c/kv/0of1/{number:064x}" for number in range(BATCH)]
        for first in range(0, -(-reads // 2), BATCH):
            size = drawn.choice(SIZES)
            kind = KINDS[first // BATCH % len(KINDS)]
            payloads = [memoryview(drawn.randbytes(size - 1) + b"1") for _ in keys]
            memory = MemoryStore()
            Verified(memory).write(keys, [(page,) for page in payloads])
            store.write(keys, [(page,) for page in payloads])
            for at, key in enumerate(keys):
                good, other = memory.values[key], memory.values[keys[at - 1]]
                spoilt = kind(good, other, drawn)
                assert spoilt.ljust(len(good), b"\0") != good
                medium.spoil(key, spoilt, len(good))
            into = [memoryview(bytearray(size)) for _ in keys]
            for status in store.read(keys, [(page,) for page in into]):
                found[kind.__name__] += 1
                found["served"] += status is Status.DONE
                found["other answers"] += status not in (Status.DONE, Status.CORRUPT)
        found["counted"] += store.corrupt
        store.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reads", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(options.reads, options.seed, str(Path(folder)))
    for name, count in found.items():
        print(f"{name}: {count}")
    sys.exit(bool(found["served"]))


if __name__ == "__main__":
    main()
