"""One large file under an index: a mount that hangs, directories that do not fit, USRBIO."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, parse
from hicache.storage.backends import hf3fs
from hicache.storage.base import Status, Storage, StorageOptions, Value
from tests.patience import PATIENCE_S

SIZE = 16 * 4096


def opened(folder: Path, timeout_s: float = 30.0, query: str = "") -> Storage:
    options = StorageOptions(size_bytes=SIZE, timeout_s=timeout_s)
    return open_storage(parse(f"hf3fs:{folder}{query}"), options)


def value(number: int, size: int) -> Value:
    return (memoryview(bytes([number]) * size),)


def read(store: Storage, key: str, size: int) -> tuple[Status, bytes]:
    target = bytearray(size)
    return store.read([key], [(memoryview(target),)])[0], bytes(target)


def used(store: Storage) -> int:
    return int(store.stats()["used_bytes"])


def test_a_mount_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end, a late answer goes nowhere, and what a late write may still touch is given to
    nobody before its end."""
    let_go, real = threading.Event(), {name: getattr(os, name) for name in ("preadv", "pwritev")}

    def hanging(name: str) -> Any:
        def call(file: int, buffers: Any, offset: int) -> int:
            let_go.wait(PATIENCE_S)
            return int(real[name](file, buffers, offset))

        return call

    with closing(opened(tmp_path, 0.2, f"?index={tmp_path / 'index'}")) as store:
        while store.write(["k"], [value(1, 5000)]) != [Status.DONE]:
            pass
        for name in real:
            monkeypatch.setattr(hf3fs.os, name, hanging(name))
        target = bytearray(5000)
        assert store.read(["k"], [(memoryview(target),)]) == [Status.FAILED]
        assert store.write(["new"], [value(2, 5000)]) == [Status.FAILED]
        assert store.lookup(["k", "new"]) == [True, False]
        assert used(store) == 4 * 4096
        assert store.write(["large"], [value(2, SIZE - 4096)]) == [Status.FULL]
        let_go.set()
        for _ in range(int(PATIENCE_S * 100)):
            if used(store) == 2 * 4096:
                break
            threading.Event().wait(0.01)
        assert used(store) == 2 * 4096
    assert target == bytearray(5000)


def test_directories_that_do_not_fit(tmp_path: Path) -> None:
    opened(tmp_path / "used").close()
    with pytest.raises(CallerError, match=r"storage_size: expected 65,536 bytes"):
        open_storage(parse(f"hf3fs:{tmp_path / 'used'}"), StorageOptions(size_bytes=1 << 20))
    with pytest.raises(CallerError, match=r"storage_size: expected the size of a new file"):
        open_storage(parse(f"hf3fs:{tmp_path / 'new'}"), StorageOptions())
    assert not (tmp_path / "new").exists()
    with pytest.raises(CallerError, match=r"version 3 in .*, found another"):
        open_storage(parse(f"file:{tmp_path / 'used'}"), StorageOptions())
    (tmp_path / "file").touch()
    with pytest.raises(CallerError, match="found a file in"):
        opened(tmp_path / "file")
    with pytest.raises(CallerError, match="engine: expected one of pread, usrbio, found 'aio'"):
        opened(tmp_path / "x", query="?engine=aio")
    with pytest.raises(CallerError, match=r"engine: expected the package.*engine=pread"):
        opened(tmp_path / "x", query="?engine=usrbio")


def test_usrbio_is_called_as_its_interface_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for its package, which moves bytes with plain calls. It never ran on 3FS."""
    package, module = ModuleType("hf3fs_fuse"), ModuleType("hf3fs_fuse.io")

    class Ring:
        def __init__(self, mount: str, entries: int, for_read: bool, **_: Any) -> None:
            self.reads, self.queued = for_read, list[Any]()

        def prepare(self, block: Any, reads: bool, file: int, offset: int, userdata: Any) -> None:
            assert reads == self.reads
            self.queued.append((block, file, offset, userdata))

        def submit(self) -> Ring:
            return self

        def wait(self, min_results: int) -> list[Any]:
            ended = []
            for block, file, offset, userdata in reversed(self.queued[:min_results]):
                move = os.preadv if self.reads else os.pwritev
                result = move(file, [block], offset)
                ended.append(SimpleNamespace(userdata=userdata, result=result))
            self.queued.clear()
            return ended

    module.__dict__.update(
        register_fd=lambda file: None,
        deregister_fd=lambda file: None,
        extract_mount_point=lambda path: str(tmp_path),
        make_ioring=Ring,
        make_iovec=lambda shared, mount: shared.buf,
    )
    monkeypatch.setitem(sys.modules, "hf3fs_fuse", package)
    monkeypatch.setitem(sys.modules, "hf3fs_fuse.io", module)
    monkeypatch.setattr(hf3fs, "find_spec", lambda name: module)
    package.io = module  # type: ignore[attr-defined]
    with closing(opened(tmp_path, query="?engine=usrbio")) as store:
        keys = [f"k{number}" for number in range(5)]
        values = [value(number, 3000 + 2000 * number) for number in range(5)]
        assert store.write(keys, values) == [Status.DONE] * 5
        assert [read(store, key, 3000 + 2000 * number) for number, key in enumerate(keys)] == [
            (Status.DONE, bytes(one)) for (one,) in values
        ]
