"""The backend's settings, from SGLang's `--hicache-storage-backend-extra-config`.

storage        address of a store: "file:/data/kv" (docs/storage_backends.md)
storage_size   the most bytes that it may use: "1TB"; no limit by default
timeout_s      seconds without progress after which the store counts as hung
weights        what the weights are called in the keys of a store, in place of a digest of their
               files

Other names there are SGLang's own: those of the dynamic backend, and those of its prefetches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage.address import parse
from hicache.storage.base import TIMEOUT_S, StorageOptions
from hicache.storage.settings import checked

_WHERE = "hicache-storage-backend-extra-config"
_OF_SGLANG = (
    *("backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold"),
    *("prefetch_timeout_base", "prefetch_timeout_per_ki_token"),
    *("hicache_storage_pass_prefix_keys", "tp_lcm_size"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """storage_size: bytes. See the file."""

    storage: str
    storage_size: int = 0
    timeout_s: float = TIMEOUT_S
    weights: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Raises CallerError for what is unknown, missing, or of another form."""
        own = {name: value for name, value in given.items() if name not in _OF_SGLANG}
        found = checked(cls, own, _WHERE, ("storage_size",), " and SGLang's own")
        if "storage" not in found:
            raise CallerError(
                f'{_WHERE}: expected "storage", the address of a store such as "file:/data/kv", '
                "found none"
            )
        parse(found["storage"])
        made = cls(**found)
        StorageOptions(timeout_s=made.timeout_s)  # raises
        return made

    @property
    def options(self) -> StorageOptions:
        """Of the store."""
        return StorageOptions(size_bytes=self.storage_size, timeout_s=self.timeout_s)
