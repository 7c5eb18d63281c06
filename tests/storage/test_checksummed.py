"""Checked values: the header byte by byte, and no wrong byte is ever served as `DONE`. The keys of
stored pages: golden vectors, and no two things under one key."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash

from hicache.core.errors import CallerError
from hicache.core.types import Key
from hicache.models.base import PoolDescription
from hicache.storage import keys
from hicache.storage.base import Status, Value
from hicache.storage.checksummed import Checksummed
from hicache.storage.keys import Context
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


POOL = PoolDescription("kv", "full", "kv", (0, 1), ("key", "value"), 2, 8)
STATE = PoolDescription(
    "mamba", "mamba", "state", (2,), ("state",), 4, 16, dtype="fp32", page_rows=1, interval=256
)
CONTEXT = Context("example-1b", "main", 4, "tokens", (POOL, STATE))
TEXT = (
    '{"format":1,"layout":"layer,part,token,head","model":"example-1b","page_size":4,"pools":'
    '{"kv":{"component":"full","compression":1,"dtype":"bf16","head_elements":8,"heads":2,'
    '"kind":"kv","layers":[0,1],"page_rows":0,"parts":["key","value"],"scale_bytes":0,'
    '"scale_group":0,"tail_bytes":0},"mamba":{"component":"mamba","compression":1,"dtype":"fp32",'
    '"head_elements":16,"heads":4,"kind":"state","layers":[2],"page_rows":1,"parts":["state"],'
    '"scale_bytes":0,"scale_group":0,"tail_bytes":0}},"revision":"main","rows":"tokens"}'
)
DIGEST = "1504881e3973aa2cb55bba463fea18d7fdfda7cab82011e5ab44f0cf47a50f4f"


def test_the_text_and_digest_of_a_context() -> None:
    assert CONTEXT.text == TEXT
    assert CONTEXT.digest == DIGEST == hashlib.sha256(TEXT.encode()).hexdigest()


def test_the_example_of_the_docs() -> None:
    """docs/storage.md computes a key with hashlib alone."""
    page = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```\n\n    (.*?)\n", page, re.DOTALL)
    result: dict[str, str] = {}
    exec(compile(example[0], "docs/storage.md", "exec"), result)
    context = replace(CONTEXT, pools=(POOL,))
    chain = Key.from_tokens(list(range(100, 108)), 4, "tenant-7").page_digests()
    assert result["text"] == context.text
    assert result["key"] == example[1]
    assert [result["key"]] == keys.page_keys(context.digest, "kv", "0of1", chain[1:])


def test_a_text_is_ascii_whatever_the_names_are() -> None:
    context = replace(CONTEXT, model='ü "\\ \U0001f600', pools=())
    assert context.text == (
        '{"format":1,"layout":"layer,part,token,head","model":"\\u00fc \\"\\\\ \\ud83d\\ude00",'
        '"page_size":4,"pools":{},"revision":"main","rows":"tokens"}'
    )


def test_shards() -> None:
    assert keys.shard(0, 1) == "0of1"
    assert keys.shard(3, 8) == "3of8"
    assert keys.shard(3, 8, shared=True) == "all"
    assert keys.shard(1, 2, 3, 4) == "1of2-3of4"
    assert keys.shard(1, 2, 3, 4, shared=True) == "all-3of4"
    for wrong in ((1, 1), (-1, 2), (0, 0)):
        with pytest.raises(CallerError, match="rank: expected 0 to"):
            keys.shard(*wrong)


CONTEXTS: tuple[dict[str, Any], ...] = (
    *({"model": "example-1c"}, {"revision": "0f1e"}, {"page_size": 8}, {"rows": "bigrams"}),
    *({"rows": "ids"}, {"pools": (POOL,)}),
)
POOLS: tuple[dict[str, Any], ...] = (
    *({"name": "kv2"}, {"component": "swa"}, {"kind": "latent"}, {"layers": (0, 2)}),
    *({"parts": ("value", "key")}, {"heads": 4}, {"head_elements": 16}, {"dtype": "fp16"}),
    *({"compression": 2}, {"page_rows": 4}, {"tail_bytes": 2}),
    *({"scale_group": group, "scale_bytes": size} for group, size in ((8, 1), (4, 1), (4, 2))),
)
OTHERS = [*CONTEXTS, *({"pools": (replace(POOL, **changed), STATE)} for changed in POOLS)]


@pytest.mark.parametrize("other", [replace(CONTEXT, **changed) for changed in OTHERS])
def test_every_field_that_decides_what_bytes_mean_is_in_the_context(other: Context) -> None:
    assert other.digest != CONTEXT.digest


def test_what_does_not_change_bytes_is_not_in_the_context() -> None:
    logical = PoolDescription("map", "swa", "logical", (), (), 1, 0)
    assert replace(CONTEXT, pools=(STATE, POOL, logical)).digest == CONTEXT.digest
    assert replace(CONTEXT, pools=(replace(POOL, window=64), STATE)).digest == CONTEXT.digest


@pytest.mark.parametrize("pool", ["kv", "0", "a.b_c-d", "k" * 64])
@pytest.mark.parametrize("shard", ["all", "0of1", "10of12", "all-3of4", "1of2-3of4"])
def test_a_key_is_taken_apart(pool: str, shard: str) -> None:
    [key] = keys.page_keys(DIGEST, pool, shard, [bytes(range(32))])
    assert key == f"{DIGEST}/{pool}/{shard}/{bytes(range(32)).hex()}"
    assert keys.take_apart(key) == (DIGEST, pool, shard, bytes(range(32)).hex())


@pytest.mark.parametrize(
    "pool", ["", "KV", "a/b", "..", ".", "-", "k v", "kv\n", "ключ", "k" * 65, "a\\b", "kv\0"]
)
def test_a_pool_whose_name_cannot_stand_in_a_key_is_refused(pool: str) -> None:
    with pytest.raises(CallerError, match="rename the pool") as caught:
        replace(CONTEXT, pools=(replace(POOL, name=pool),))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"model": ""}, {"model": "a\nb"}, {"revision": "\n"}])
def test_a_context_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(CallerError, match=f"{next(iter(wrong))}: expected"):
        replace(CONTEXT, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "key",
    [
        *("", "context", f"{DIGEST}/kv", f"{DIGEST}/kv/0of1/x", f"{DIGEST}/kv/0of1/{DIGEST}/a"),
        *(f"{DIGEST}/{part}/{DIGEST}" for part in ("KV/all", "kv/1", "kv/00of1", "kv/0of1-")),
    ],
)
def test_other_texts_are_no_keys(key: str) -> None:
    assert keys.take_apart(key) is None


def test_the_stored_text_of_a_context_is_known_by_its_digest() -> None:
    text = CONTEXT.text.encode()
    assert keys.take_apart(keys.context_key(DIGEST)) == (DIGEST, "", "", "")
    document_of = keys.document_of(text, DIGEST)
    assert document_of is not None
    assert document_of["pools"]["kv"]["heads"] == 2
    assert keys.document_of(text + b" ", DIGEST) is None
    assert keys.document_of(b"{", keys.digest_of(b"{")) is None
