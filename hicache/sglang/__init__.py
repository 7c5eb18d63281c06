"""A storage backend for SGLang's HiCache: its host tier above, this cache's verified stores below.

--hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{"backend_name":
  "hicache", "module_path": "hicache.sglang", "class_name": "HicacheStorage", "interface_v1": 1,
  "storage": "file:/data/kv"}'

docs/sglang.md has the rest. The class is imported when it is first used: its base is SGLang's.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["HicacheStorage"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hicache.sglang' has no attribute {name!r}")
    return getattr(import_module("hicache.sglang.backend"), name)
