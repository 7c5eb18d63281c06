"""Checked values: the header byte by byte, and no wrong byte is ever served as `DONE`."""

from __future__ import annotations

import struct

import pytest
import xxhash

from hicache.storage.base import Status, Value
from hicache.storage.checksummed import Checksummed
from tests.storage.memory_store import MemoryStore

KEY = "c/kv/0of1/d"


def value(*parts: bytes) -> Value:
    return tuple(memoryview(bytearray(part)) for part in parts)


def read(store: Checksummed, key: str, length: int) -> tuple[Status, bytes]:
    into = value(bytes(length // 2), bytes(length - length // 2))
    return store.read([key], [into])[0], b"".join(into)


@pytest.fixture
def medium() -> MemoryStore:
    return MemoryStore()


def test_the_header_byte_by_byte(medium: MemoryStore) -> None:
    """docs/storage.md describes this to other implementations."""
    payload = bytes(range(200))
    assert Checksummed(medium).write([KEY], [value(payload[:77], payload[77:])]) == [Status.DONE]
    stored = medium.values[KEY]
    assert stored[64:] == payload
    assert stored[:8] == b"hicache\0"
    assert struct.unpack("<IIQ", stored[8:24]) == (1, 64, 200)
    assert stored[24:40] == xxhash.xxh3_128(KEY.encode()).digest()
    assert stored[40:56] == xxhash.xxh3_128(KEY.encode() + payload).digest()
    assert stored[56:64] == bytes(8)


def test_every_flipped_bit_is_found(medium: MemoryStore) -> None:
    store = Checksummed(medium)
    store.write([KEY], [value(b"a page of bytes")])
    good = medium.values[KEY]
    for bit in range(len(good) * 8):
        spoilt = bytearray(good)
        spoilt[bit // 8] ^= 1 << bit % 8
        medium.values[KEY] = bytes(spoilt)
        assert read(store, KEY, 15)[0] is Status.CORRUPT, f"bit {bit}"
        assert KEY not in medium.values, "what does not verify is deleted"
    assert store.stats()["corrupt"] == len(good) * 8


def test_a_store_that_says_done_and_writes_nothing_is_found(medium: MemoryStore) -> None:
    class Silent(MemoryStore):
        def read(self, keys: object, values: object) -> list[Status]:
            return [Status.DONE]

    store = Checksummed(Silent())
    store.write([KEY], [value(b"payload")])
    assert store.read([KEY], [value(b"former.")]) == [Status.CORRUPT]
