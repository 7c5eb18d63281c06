"""A file store whose disk others have filled, or whose folder cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, open_store, parse
from hicache.storage.base import Status, Storage, StorageOptions, listening
from hicache.storage.checksummed import Checksummed
from hicache.storage.keys import page_keys
from traces.cli import main

from .mediums import small_disk

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
KEYS = page_keys("c" * 64, "kv", "0of1", [number.to_bytes(32, "little") for number in range(900)])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with small_disk(tmp_path, 3 * MIB) as folder:
            yield folder
    except OSError as error:
        pytest.skip(str(error))


def opened(folder: Path, size_bytes: int = 0) -> Checksummed:
    size = f"?size={size_bytes}" if size_bytes else ""
    return Checksummed(open_storage(parse(f"file:{folder}{size}"), StorageOptions()))


def put(store: Storage, *numbers: int, size: int = 4000) -> list[Status]:
    values = [(memoryview(bytes([number % 256]) * size),) for number in numbers]
    return store.write([KEYS[number] for number in numbers], values)


def filled(folder: Path, count: int) -> None:
    """A store with the first values, each written by itself."""
    with closing(opened(folder)) as store:
        for number in range(count):
            put(store, number)


def served(store: Storage) -> set[int]:
    """What is there and right."""
    into = [memoryview(bytearray(4000)) for _ in KEYS]
    statuses = store.read(KEYS, [(view,) for view in into])
    assert set(statuses) <= {Status.DONE, Status.MISSING}
    there = {number for number, status in enumerate(statuses) if status is Status.DONE}
    assert all(bytes(into[number]) == bytes([number % 256]) * 4000 for number in there)
    return there


def fill(disk: Path) -> Path:
    """What others do."""
    others = disk / "others"
    with others.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return others


def test_gc_on_a_full_disk_is_what_it_says(disk: Path) -> None:
    filled(disk / "store", 300)
    fill(disk)
    out, words = Path(f"/dev/shm/{os.getpid()}.json"), ["--size", str(100 * 4064), "--json"]
    assert main(["store", "gc", f"file:{disk / 'store'}", *words, str(out)]) == 0
    message = json.loads(out.read_text())
    out.unlink()
    assert (message["deleted_pages"], message["failed_values"]) == (200, 0)
    with closing(opened(disk / "store")) as store:
        assert len(served(store)) == 100
        assert put(store, 700) == [Status.DONE]


def test_gc_tells_what_the_store_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hicache.storage.backends.file import FileStore

    filled(tmp_path / "store", 10)
    real = FileStore.delete

    def delete(self: FileStore, keys: list[str]) -> list[Status]:
        return real(self, keys[:4]) + [Status.FAILED] * len(keys[4:])

    monkeypatch.setattr(FileStore, "delete", delete)
    assert main(["store", "gc", f"file:{tmp_path / 'store'}", "--size", "8200"]) == 2
    output = capsys.readouterr()
    assert "Deleted 4 of 10 pages" in output.out
    assert "found 4 values that it kept" in output.err


def test_a_full_disk_without_any_reserve_is_read(disk: Path) -> None:
    """Somebody took the reserve, too. Writes are refused with the reason until there is room."""
    filled(disk / "store", 100)
    (disk / "store" / "reserve").unlink()
    others = fill(disk)
    notices: list[str] = []
    address = parse(f"file:{disk / 'store'}")
    store = open_store(address, StorageOptions(), lambda: 0.0, notices.append)
    raw = opened(disk / "store")
    assert served(raw) == set(range(100))
    assert "the disk of" in notices[0]
    with listening() as heard:
        assert put(raw, 200) == [Status.FULL]
    assert "is full" in heard[0]
    others.unlink()
    assert put(raw, 200) == [Status.DONE]
    assert served(raw) == {*range(100), 200}
    raw.close()
    store.close()


UNPRIVILEGED = """
import os, sys
import traces.commands.store
from tests.storage.test_full_disk import *
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
folder = Path(sys.argv[1])
with closing(opened(folder)) as store:
    assert len(served(store)) == 50, "read"
    with listening() as heard:
        assert put(store, 1, 99) == [Status.FAILED] * 2
    assert "cannot be written" in heard[0], heard
    assert store.delete([next(store.entries("")).key]) == [Status.FAILED]
for action in ("list", "check"):
    assert main(["store", action, f"file:{folder}"]) == 0, action
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_folder_that_cannot_be_written_is_read(killed: bool) -> None:
    """With a clean index, and with the log of a process that was killed. Not in pytest's own
    folder: another run of pytest takes away the right of others to enter that one."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder = place / "store"
        store = opened(folder)
        put(store, *range(50))
        if killed:
            folder = place / "copy"
            subprocess.run(["cp", "-a", str(place / "store"), str(folder)], check=True)
        store.close()
        for path in [*place.parents[::-1][2:], place]:
            if path != Path("/tmp"):
                os.chmod(path, 0o755)
        for path in [folder, *folder.rglob("*")]:
            os.chmod(path, 0o555 if path.is_dir() else 0o444)
        before = sorted(folder.rglob("*"))
        command = [sys.executable, "-c", UNPRIVILEGED, str(folder)]
        child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        for path in [folder, *folder.rglob("*")]:
            os.chmod(path, 0o755)
        assert child.returncode == 0, child.stderr
        assert child.stderr.count("so it is read, and nothing is stored") == 2
        assert before == sorted(folder.rglob("*"))


def test_values_without_their_index_are_not_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder, 50)
    index = (folder / "index.sqlite").read_bytes()
    data = (folder / "data").read_bytes()
    for left in (None, b""):
        (folder / "index.sqlite").unlink()
        if left is not None:
            (folder / "index.sqlite").write_bytes(left)
        with pytest.raises(CallerError, match="put its index"):
            opened(folder)
        assert (folder / "data").read_bytes() == data
        (folder / "index.sqlite").write_bytes(index)
    with closing(opened(folder)) as store:
        assert served(store) == set(range(50))


def test_an_acknowledged_value_is_not_in_a_deleted_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file went away while the value was written."""
    store, real = opened(tmp_path / "store"), os.pwritev
    put(store, 1)

    def pwritev(file: int, parts: list[memoryview], at: int) -> int:
        (tmp_path / "store" / "data").unlink()
        return real(file, parts, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        assert put(store, 2) == [Status.FAILED]
    assert put(store, 2) == [Status.DONE]
    store.close()


def test_a_large_file_that_does_not_fit_leaves_nothing(disk: Path) -> None:
    with pytest.raises(CallerError, match="No space left on device"):
        open_storage(parse(f"hf3fs:{disk / 'large'}?size=64Mi"), StorageOptions())
    assert not (disk / "large" / "data").exists()
