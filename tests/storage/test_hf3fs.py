"""One large file under an index: directories that do not fit."""

from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Storage, StorageOptions

SIZE = 16 * 4096


def opened(folder: Path) -> Storage:
    return open_storage(parse(f"hf3fs:{folder}?size={SIZE}"), StorageOptions())


def test_directories_that_do_not_fit(tmp_path: Path) -> None:
    opened(tmp_path / "used").close()
    with pytest.raises(CallerError, match=r"hf3fs: size: expected 65,536 bytes"):
        open_storage(parse(f"hf3fs:{tmp_path / 'used'}?size=1Mi"), StorageOptions())
    with pytest.raises(CallerError, match=r"hf3fs: size: expected that of a new file"):
        open_storage(parse(f"hf3fs:{tmp_path / 'new'}"), StorageOptions())
    assert not (tmp_path / "new").exists()
    with pytest.raises(CallerError, match=r"version 3 in .*, found another"):
        open_storage(parse(f"file:{tmp_path / 'used'}"), StorageOptions())
    (tmp_path / "file").touch()
    with pytest.raises(CallerError, match="found a file in"):
        opened(tmp_path / "file")
