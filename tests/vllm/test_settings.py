"""The connector's settings of its store."""

from __future__ import annotations

import pytest

from hicache.core.errors import CallerError
from hicache.storage.base import StorageOptions
from hicache.vllm.describing import Settings


def test_a_store_gets_its_size_and_its_time() -> None:
    given = {"host": "1GB", "storage": "file:/data/kv"}
    assert Settings.of(given).options == StorageOptions()
    found = Settings.of(given | {"storage_size": "2GB", "timeout_s": 20})
    assert found.options == StorageOptions(size_bytes=2 * 10**9, timeout_s=20)


@pytest.mark.parametrize("timeout_s", [0, -1, "20", True, float("nan"), 1e9])
def test_another_time_is_one_line(timeout_s: object) -> None:
    with pytest.raises(CallerError, match="timeout_s: expected more than 0") as caught:
        Settings.of({"host": "1GB", "timeout_s": timeout_s})
    assert "\n" not in str(caught.value)
