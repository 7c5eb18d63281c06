"""One large file under an index: a mount that hangs, directories that do not fit."""

import os
import threading
from contextlib import closing
from pathlib import Path
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


def used(store: Storage) -> int:
    return int(store.stats()["used_bytes"])


def test_a_mount_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end, a late answer goes nowhere, and what a late write may still touch is given to
    nobody before its end."""
    released, real = threading.Event(), {name: getattr(os, name) for name in ("preadv", "pwritev")}

    def hanging(name: str) -> Any:
        def call(file: int, buffers: Any, offset: int) -> int:
            released.wait(PATIENCE_S)
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
        released.set()
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
