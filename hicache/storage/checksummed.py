"""Values that are checked: 64 bytes before each payload say what the payload must be.

A wrapper over any store. A header follows from the key and the payload alone. So a read computes
the header that it should have found and compares all 64 bytes: a flipped bit anywhere, a cut or
torn value, the whole value of another key and another format are all found the same way. What does
not verify is deleted and counted, and is never `DONE`.

The digests are xxh3_128: they find accidents and faults of stores. They do not stop someone who
may write to the store and forges a value on purpose.
"""

import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import xxhash

from .base import Entry, Losses, Status, Storage, Value

HEADER_BYTES = 64
VERSION = 1  # of the header
_MAGIC = b"hicache\0"
# magic, version, bytes of the header, bytes of the payload, digest of the key, digest of the key
# and the payload, zeros. Numbers are little-endian.
_HEADER = struct.Struct("<8sIIQ16s16s8x")


def header_of(key: str, value: Value) -> bytes:
    """The header of a payload under a key."""
    name = key.encode()
    full = xxhash.xxh3_128(name)
    length = 0
    for buffer in value:
        full.update(buffer)
        length += buffer.nbytes
    return _HEADER.pack(
        _MAGIC, VERSION, HEADER_BYTES, length, xxhash.xxh3_128_digest(name), full.digest()
    )


class Checksummed(Storage):
    """A store whose `DONE` means: these are the bytes that were written under this key."""

    def __init__(self, store: Storage, *, delete_corrupt: bool = True) -> None:
        self.store = store
        self.corrupt = 0  # values that a read found wrong
        self._delete_corrupt = delete_corrupt
        self._lock = threading.Lock()

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return self.store.lookup(keys)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        framed = _framed(values)
        statuses = self.store.read(keys, framed)
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            if statuses[at] is Status.DONE and framed[at][0] != header_of(key, value):
                statuses[at] = Status.CORRUPT
        wrong = [
            key for key, status in zip(keys, statuses, strict=True) if status is Status.CORRUPT
        ]
        if wrong:
            with self._lock:
                self.corrupt += len(wrong)
            if self._delete_corrupt:
                self.store.delete(wrong)
        return statuses

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        framed = _framed(values)
        for key, value, (header, *_) in zip(keys, values, framed, strict=True):
            header[:] = header_of(key, value)
        return self.store.write(keys, framed)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        return self.store.delete(keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        return self.store.stats() | {"corrupt": self.corrupt}

    def poll(self) -> int:
        return self.store.poll()

    @property
    def losses(self) -> Losses:
        with self._lock:
            return replace(self.store.losses, reads_corrupt=self.corrupt)

    def close(self) -> None:
        self.store.close()


def _framed(values: Sequence[Value]) -> list[Value]:
    """The values with room for a header before each."""
    return [(memoryview(bytearray(HEADER_BYTES)), *value) for value in values]
