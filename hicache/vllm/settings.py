"""The connector's settings, from `kv_connector_extra_config` of vLLM's `--kv-transfer-config`.

host           bytes of host memory, of all ranks together: "64GB"
storage        address of a store: "file:/data/kv" (docs/storage_backends.md); none by default
storage_size   the most bytes that it may use: "1TB"; no limit by default
timeout_s      seconds without progress after which the store counts as hung
eviction       name of an eviction policy (docs/policies.md)
wait_s         the longest that a request waits for what the store has
weights        what the weights are called in the keys of a store, in place of a digest of their
               files
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage.address import checked, parse
from hicache.storage.base import TIMEOUT_S, StorageOptions


@dataclass(frozen=True, slots=True)
class Settings:
    """host, storage_size: bytes. See the file."""

    host: int
    storage: str = ""
    storage_size: int = 0
    timeout_s: float = TIMEOUT_S
    eviction: str = "lru"
    wait_s: float = 5.0
    weights: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Raises CallerError for what is unknown, missing, or of another form."""
        where = "kv_connector_extra_config"
        found = checked(cls, given, where, ("host", "storage_size"))
        if "host" not in found:
            raise CallerError(
                f'{where}: expected "host", the bytes of host memory, such as "64GB", found none'
            )
        wait = found.get("wait_s", 0)
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < 1e6:
            raise CallerError(f"wait_s: expected 0 or more seconds, found {wait!r:.40}")
        if found.get("storage"):
            parse(found["storage"])
        made = cls(**found)
        StorageOptions(timeout_s=made.timeout_s)  # raises
        return made

    @property
    def options(self) -> StorageOptions:
        """Of the store."""
        return StorageOptions(size_bytes=self.storage_size, timeout_s=self.timeout_s)
