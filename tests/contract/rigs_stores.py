"""What the suite of stores needs of each: how it is opened, its server, and what it can do."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hicache.core.errors import CallerError
from hicache.storage.address import backend, open_storage, parse
from hicache.storage.base import Storage, StorageOptions, Value
from tests.needs import missing
from tests.servers import SERVERS, Server, free_ports

PATIENT_S = 10.0  # where an answer is expected
HASTY_S = 1.0  # where none is
MIB = 1 << 20
CONTEXT = "c" * 64
LOCAL = ("file", "hf3fs")  # without a server
ROOM = 96 * MIB
S = TypeVar("S", bound=Storage)


@dataclass(slots=True)
class Rig:
    """One store to test. server: None for a store in this process."""

    scheme: str
    address: str
    server: Server | None = None

    def open(self, timeout_s: float = PATIENT_S) -> Storage:
        return patiently(lambda: open_storage(parse(self.address), StorageOptions(timeout_s)))


def patiently(opens: Callable[[], S]) -> S:
    """A store whose server may be slow on a busy machine, also where it is opened hastily."""
    for _ in range(20):
        with suppress(CallerError):
            return opens()
    return opens()


def usable(scheme: str) -> None:
    """Leaves the test out if the client of these stores, or a library that it needs, is missing."""
    try:
        backend(scheme)
    except CallerError as error:
        missing(str(error))


@contextmanager
def started(scheme: str, folder: Path, size_bytes: int = ROOM) -> Iterator[Rig]:
    """A store of its own, with a server of its own."""
    usable(scheme)
    if scheme in LOCAL:
        yield Rig(scheme, f"{scheme}:{folder / 'store'}?size={size_bytes}")
        return
    try:
        server = SERVERS[scheme](free_ports(1)[0], folder, size_bytes)
    except CallerError as error:
        missing(str(error))
    try:
        yield Rig(scheme, server.address, server)
    finally:
        server.stop()


def keys_of(name: str, count: int) -> list[str]:
    """Keys that no other test uses, in the form of real ones."""
    return [f"{CONTEXT}/{name}/0of1/{number:064x}" for number in range(count)]


def value_of(text: bytes, *cuts: int) -> Value:
    """The bytes in several buffers, cut at these offsets."""
    edges = [0, *cuts, len(text)]
    return tuple(memoryview(bytearray(text[start:end])) for start, end in itertools.pairwise(edges))


def blank(value: Value) -> Value:
    return tuple(memoryview(bytearray(buffer.nbytes)) for buffer in value)


def joined(values: Sequence[Value]) -> list[bytes]:
    return [b"".join(value) for value in values]


def drawn(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)
