"""Real processes that are killed while they write: nothing is wrong, torn or lost.

Two processes write batches of several sizes to one folder. Each says on a pipe what it was promised
(`DONE`). Both get SIGKILL at a drawn moment. Then the folder is opened and read whole.
"""

import os
import random
import signal
import struct
import time
from contextlib import closing
from hashlib import shake_128
from pathlib import Path

import pytest

from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions
from hicache.storage.checksummed import Checksummed

SIZES = (200, 5000, 40_000, 120_000)
KEYS = 60  # of each writer
BOUND = 2 << 20
_PROMISE = struct.Struct("<II")  # number of a key, version


def key_of(number: int) -> str:
    return f"{'c' * 64}/kv/0of1/{number:064x}"


def page_of(number: int, version: int) -> bytes:
    """What a version of a page holds: no two have a block in common."""
    seed = _PROMISE.pack(number, version)
    size = SIZES[number % len(SIZES)]
    return (seed + shake_128(seed).digest(992) * (size // 992 + 1))[:size]


def opened(folder: Path, size_bytes: int) -> Checksummed:
    options = StorageOptions(size_bytes=size_bytes, timeout_s=20)
    return Checksummed(open_storage(parse(f"file:{folder}"), options))


def write_until_killed(folder: Path, size_bytes: int, writer: int, first: int, pipe: int) -> None:
    """What a writing process does. first: the version that it begins with."""
    drawn, version = random.Random(writer << 20 | first), first
    store = opened(folder, size_bytes)
    while True:
        version += 1
        numbers = {writer * KEYS + drawn.randrange(KEYS) for _ in range(drawn.randint(1, 6))}
        keys = [key_of(number) for number in numbers]
        pages = [(memoryview(page_of(number, version)),) for number in numbers]
        for number, status in zip(numbers, store.write(keys, pages), strict=True):
            assert status in (Status.DONE, Status.FULL)
            if status is Status.DONE:
                os.write(pipe, _PROMISE.pack(number, version))


def killed(folder: Path, size_bytes: int, first: int, drawn: random.Random) -> dict[int, int]:
    """Two writers begin, and are killed. Half of the time one is killed while it opens the folder
    or writes its first pages. Returns the versions that were promised."""
    children = []
    for writer in (0, 1):
        reader, pipe = os.pipe()
        child = os.fork()
        if not child:
            try:
                write_until_killed(folder, size_bytes, writer, first, pipe)
            finally:
                os._exit(4)
        os.close(pipe)
        children.append((child, reader))
    drawn.shuffle(children)
    promised = dict[int, int]()
    for child, reader in children:
        with open(reader, "rb", buffering=0) as stream:
            text, least = b"", drawn.choice((0, drawn.randint(1, 25))) * _PROMISE.size
            while len(text) < least and (more := stream.read(least - len(text))):
                text += more
            time.sleep(drawn.uniform(0, 0.02))  # opening takes about 5 ms
            os.kill(child, signal.SIGKILL)
            text += stream.readall()
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it ended by itself"
        promised.update(_PROMISE.iter_unpack(text))
    return promised


@pytest.mark.parametrize("size_bytes", [0, BOUND])
def test_killed_writers(tmp_path: Path, size_bytes: int) -> None:
    """In a bounded folder, where eviction goes on while writers die, pages may be missing."""
    drawn, promised, served = random.Random(7), dict[int, int](), 0
    for first in range(0, 120_000, 10_000):
        promised |= killed(tmp_path / "store", size_bytes, first, drawn)
        with closing(opened(tmp_path / "store", size_bytes)) as store:
            pages = [memoryview(bytearray(len(page_of(number, 0)))) for number in range(2 * KEYS)]
            keys = [key_of(number) for number in range(2 * KEYS)]
            statuses = store.read(keys, [(page,) for page in pages])
            assert set(statuses) <= {Status.DONE, Status.MISSING}
            for number, (status, page) in enumerate(zip(statuses, pages, strict=True)):
                if status is Status.DONE:
                    version = _PROMISE.unpack_from(page)[1]
                    assert page == page_of(number, version)
                    assert version >= promised.get(number, 0), "older than promised"
                    promised[number] = version  # what was served must stay
                    served += 1
                else:
                    assert number not in promised or size_bytes, "promised and lost"
                    promised.pop(number, None)
            assert not store.corrupt, "found by its checksum alone"
            used = sum(-(-entry.size_bytes // 4096) for entry in store.entries(""))
            assert store.stats()["used_bytes"] == used * 4096, "left by the dead"
    assert served > 100
