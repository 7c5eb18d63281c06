"""`hicache store list|check|gc`: what people and programs are told, and what is deleted."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hicache.core.types import Key
from hicache.models.base import PoolDescription
from hicache.storage import keys
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions
from hicache.storage.checksummed import Checksummed

from .rig import Capsys, document, fails

KV = PoolDescription("kv", "full", "kv", (0,), ("key", "value"), 2, 8)
INDEXER = PoolDescription("indexer", "full", "indexer", (0,), ("key",), 1, 8, anchor="kv")
ONE = keys.Context("example-1b", "main", 16, "tokens", (KV, INDEXER))
TWO = keys.Context("example-7b", "", 64, "ids", (KV,))


def written(folder: Path, values: dict[str, bytes]) -> str:
    """The address of a store to which these were written."""
    address = f"file:{folder}"
    store = Checksummed(open_storage(parse(address), StorageOptions()))
    result = store.write(list(values), [(memoryview(value),) for value in values.values()])
    assert set(result) == {Status.DONE}
    store.close()
    return address


def fill(folder: Path) -> str:
    """Ten pages of one context in two pools, three of another whose text is not stored."""
    values = {keys.context_key(ONE.digest): ONE.text.encode()}
    chain = Key.from_page_ids(list(range(10))).page_digests()
    for context, pools, digests in ((ONE, ("kv", "indexer"), chain), (TWO, ("kv",), chain[:3])):
        for pool in pools:
            names = keys.page_keys(context.digest, pool, "0of1", digests)
            values |= {name: bytes([number]) * 1000 for number, name in enumerate(names)}
    return written(folder, values)


def age(folder: Path, pages: int, seconds: int) -> None:
    """Let the first pages of the first context be used so long ago."""
    base = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    chain = Key.from_page_ids(list(range(pages))).page_digests()
    base.executemany(
        "UPDATE pages SET used_at = used_at - ? WHERE id IN"
        " (SELECT page FROM stored WHERE key LIKE ?)",
        [(seconds, f"{ONE.digest}/%/{digest.hex()}") for digest in chain],
    )
    base.close()


def spoil(folder: Path, key: str) -> None:
    base = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    (start,) = base.execute(
        "SELECT start * 4096 FROM runs JOIN stored ON id = value WHERE key = ?", (key,)
    ).fetchone()
    base.close()
    with open(folder / "data", "r+b") as file:
        file.seek(start + 500)
        file.write(b"spoilt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def address(folder: Path) -> str:
    return fill(folder)


def results(tmp_path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    return document(tmp_path, "store", *words, code=code)


def test_list_tells_models_apart(address: str, tmp_path: Path, capsys: Capsys) -> None:
    result = results(tmp_path, "list", address)["contexts"]
    assert {item["context"]: (item["pages"], item["values"]) for item in result} == {
        ONE.digest: (10, 20),
        TWO.digest: (3, 3),
    }
    documents = {item["context"]: item["document"] for item in result}
    assert documents == {ONE.digest: json.loads(ONE.text), TWO.digest: None}
    assert "example-1b main" in capsys.readouterr().out


def test_check_finds_what_is_spoilt(
    address: str, folder: Path, tmp_path: Path, capsys: Capsys
) -> None:
    assert results(tmp_path, "check", address)["verified"] == 24
    digest = Key.from_page_ids([0]).page_digests()
    [bad] = keys.page_keys(ONE.digest, "indexer", "0of1", digest)
    spoil(folder, bad)
    result = results(tmp_path, "check", address, code=12)
    assert (result["corrupt"], result["verified"], result["values"]) == ([bad], 23, 24)
    assert f"corrupt: {bad}" in capsys.readouterr().out.replace("\n", "")
    result = results(tmp_path, "check", address, "--delete")
    assert result["corrupt"] == [bad]
    result = results(tmp_path, "check", address)
    assert (result["corrupt"], result["values"]) == ([], 23)


def test_gc_keeps_a_size_and_deletes_whole_pages(
    address: str, folder: Path, tmp_path: Path
) -> None:
    age(folder, pages=6, seconds=1000)
    done = results(tmp_path, "gc", address, "--size", str(15 * 1064))
    assert (done["pages"], done["deleted_pages"], done["bytes"]) == (13, 4, 23 * 1064)
    left = results(tmp_path, "list", address)["contexts"]
    assert {item["context"]: (item["pages"], item["values"]) for item in left} == {
        ONE.digest: (6, 12),
        TWO.digest: (3, 3),
    }


def test_gc_by_age_and_by_context(address: str, folder: Path, tmp_path: Path) -> None:
    age(folder, pages=6, seconds=7200)
    assert results(tmp_path, "gc", address, "--unused-for", "3h")["deleted_pages"] == 0
    assert results(tmp_path, "gc", address, "--unused-for", "1h")["deleted_pages"] == 6
    assert results(tmp_path, "gc", address, "--context", TWO.digest[:9])["deleted_pages"] == 3
    assert results(tmp_path, "gc", address, "--context", ONE.digest)["deleted_pages"] == 4
    left = results(tmp_path, "list", address)["store"]["values"]
    assert left == 0, "the text of a context goes with its last page"


def test_bad_input_is_one_line(address: str, tmp_path: Path, capsys: Capsys) -> None:
    before = sorted(tmp_path.rglob("*"))
    for words, message in (
        ((), "expected --size, --unused-for or --context"),
        (("--unused-for", "7"), "expected a time such as 12h or 7d"),
        (("--context", "zz"), "expected the beginning of one that is stored"),
    ):
        assert message in fails(capsys, "store", "gc", address, *words)
    assert "expected a store, found none" in fails(capsys, "store", "check", "file:/nowhere")
    assert sorted(tmp_path.rglob("*")) == before


def test_values_under_other_keys_are_counted_and_not_in_the_way(
    folder: Path, tmp_path: Path, capsys: Capsys
) -> None:
    """And a text that is not the context's is corrupt."""
    store = open_storage(parse(f"file:{folder}"), StorageOptions())
    store.write(["some/thing", "\x1b[31mred"], [(memoryview(b"x"),)] * 2)
    store.close()
    assert results(tmp_path, "list", f"file:{folder}")["contexts"][0]["values"] == 2
    written(folder, {keys.context_key(ONE.digest): b"{}"})
    result = results(tmp_path, "check", f"file:{folder}", code=12)
    assert (result["verified"], keys.context_key(ONE.digest) in result["corrupt"]) == (0, True)
    assert "\x1b[31m" not in capsys.readouterr().out
    assert results(tmp_path, "gc", f"file:{folder}", "--size", "0")["deleted_pages"] == 2
