"""The embedded store: several processes on a folder, room, and what a system refuses."""

import errno
import fcntl
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, parse
from hicache.storage.backends.file import FileStore
from hicache.storage.base import Status, StorageOptions
from hicache.storage.file_index import Data, Run

OPEN: list[FileStore] = []


def opened(folder: Path, slots: int = 0) -> FileStore:
    """Closed at the end of the test, too."""
    size = f"?size={slots * 4096}" if slots else ""
    store = open_storage(parse(f"file:{folder}{size}"), StorageOptions())
    assert isinstance(store, FileStore)
    OPEN.append(store)
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def store(folder: Path) -> FileStore:
    return opened(folder)


def page(name: str, size: int = 3000) -> bytes:
    return (name.encode() * size)[:size]


def put(store: FileStore, *names: str, size: int = 3000) -> list[Status]:
    return store.write(
        [f"c/kv/0of1/{name}" for name in names], [(memoryview(page(name, size)),) for name in names]
    )


def get(store: FileStore, name: str, size: int = 3000) -> bytes | Status:
    into = memoryview(bytearray(size))
    status = store.read([f"c/kv/0of1/{name}"], [(into[: size // 3], into[size // 3 :])])[0]
    return bytes(into) if status is Status.DONE else status


def there(store: FileStore, names: str) -> str:
    lookup = store.lookup([f"c/kv/0of1/{name}" for name in names])
    return "".join(name for name, item in zip(names, lookup, strict=True) if item)


def test_the_text_of_a_context_stays_while_its_pages_are_written(folder: Path) -> None:
    store = opened(folder, 4)
    assert store.write(["c/context"], [(memoryview(b"{}"),)]) == [Status.DONE]
    for name in "abcdefgh":
        put(store, name)
    assert store.lookup(["c/context"]) == [True]


def test_a_smaller_size_is_kept_to_when_the_store_is_opened(folder: Path) -> None:
    store = opened(folder)
    for first in range(0, 256, 16):
        put(store, *(f"{number:03}" for number in range(first, first + 16)))
    store.close()
    store = opened(folder, 64)
    assert int(store.stats()["disk_bytes"]) <= 64 * 4096


def test_an_index_that_fails_is_a_failure_and_not_an_error(store: FileStore, folder: Path) -> None:
    put(store, "a")
    holder = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert put(store, "b") == [Status.FAILED]
    assert get(store, "a") == page("a"), "readers do not wait"
    holder.execute("ROLLBACK")
    holder.close()
    assert put(store, "b") == [Status.DONE]


def test_files_deleted_under_an_open_store(store: FileStore, folder: Path) -> None:
    put(store, "a")
    store.close()
    store = opened(folder)
    (folder / "data").unlink()
    assert get(store, "a") is Status.MISSING
    assert there(store, "a") == "", "what is lost is forgotten"
    assert put(store, "b") == [Status.DONE]
    os.truncate(folder / "data", 100)
    assert get(store, "b") is Status.CORRUPT
    shutil.rmtree(folder)
    assert get(store, "b") is Status.MISSING, "a new folder was begun"
    assert put(store, "c") == [Status.DONE]
    assert get(store, "c") == page("c")


def test_a_folder_that_turns_into_a_file_fails_without_an_error(folder: Path) -> None:
    store = opened(folder)
    put(store, "a")
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("not a folder")
    assert get(store, "a") is Status.FAILED
    assert put(store, "a") == [Status.FAILED]
    assert there(store, "a") == ""
    with pytest.raises(OSError, match="found a file"):
        list(store.entries(""))
    folder.unlink()
    folder.with_name("elsewhere").rename(folder)
    assert get(store, "a") == page("a")


def refused(folder: Path) -> str:
    with pytest.raises(CallerError) as caught:
        opened(folder)
    text = str(caught.value)
    assert text.startswith("storage: expected ")
    assert "\n" not in text
    assert "; " in text, "what to do"
    return text


@pytest.mark.parametrize("version", [0, 2, 103])
def test_a_folder_of_another_version_is_refused(folder: Path, version: int) -> None:
    opened(folder).close()
    with closing(sqlite3.connect(folder / "index.sqlite")) as base:
        base.execute(f"PRAGMA user_version = {version}")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "name another folder, or delete this one" in refused(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_path_or_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    assert "found a file" in refused(tmp_path / "thesis.txt")
    assert "found a file" in refused(tmp_path / "thesis.txt" / "below")
    assert "'thesis.txt'" in refused(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("thesis.txt", "x")]


def test_a_damaged_index_is_refused_and_the_folder_does_not_stay_locked(folder: Path) -> None:
    opened(folder).close()
    (folder / "index.sqlite").write_bytes(b"not a database" * 1000)
    assert "delete this one" in refused(folder)
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # others would wait without end


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert os.strerror(code) in refused(folder)


def test_a_use_does_not_count_for_the_next_value_in_the_slot(folder: Path) -> None:
    file_store, two = opened(folder, 2), opened(folder, 2)
    put(file_store, "a")
    put(file_store, "b")
    get(file_store, "a")  # filed when this store writes next
    two.delete(["c/kv/0of1/a"])
    put(two, "c")
    get(two, "b")
    two.close()
    put(file_store, "d")
    assert there(file_store, "abcd") == "bd"


def test_room_that_is_given_back_is_no_room_of_a_value_written_beside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other, real_punch = opened(folder), opened(folder), Data.punch
    beside = threading.Thread(target=put, args=(other, "b"))

    def punch(data: Data, run: Run) -> bool:
        beside.start()
        beside.join(0.3)  # it waits, or has written
        return real_punch(data, run)

    put(store, "a")
    monkeypatch.setattr(Data, "punch", punch)
    store.delete(["c/kv/0of1/a"])
    monkeypatch.undo()
    beside.join()
    assert get(store, "b") == page("b")
    store.delete(["c/kv/0of1/b"])
    assert not (folder / "data").stat().st_blocks, "the disk has its room"


def test_a_folder_whose_making_was_cut_short_is_finished(folder: Path) -> None:
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "index.sqlite-journal").touch()
    opened(folder).close()
    (folder / "index.sqlite").unlink()
    opened(folder).close()


def test_directories_that_do_not_fit_one_large_file(tmp_path: Path) -> None:
    for name, size, text in (
        ("used", "?size=1Mi", "hf3fs: size: expected 65,536 bytes"),
        ("new", "", "hf3fs: size: expected that of a new file"),
        ("file", "?size=65536", "found a file in"),
    ):
        open_storage(parse(f"hf3fs:{tmp_path / 'used'}?size=65536"), StorageOptions()).close()
        (tmp_path / "file").touch()
        with pytest.raises(CallerError, match=text):
            open_storage(parse(f"hf3fs:{tmp_path / name}{size}"), StorageOptions())
    assert not (tmp_path / "new").exists()
    with pytest.raises(CallerError, match=r"version 3 in .*, found another"):
        opened(tmp_path / "used")
