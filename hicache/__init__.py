"""A tiered KV cache for LLM inference whose decisions are pure and can all be checked.

The public names of the library: `from hicache import Core, Config, Driver`. docs/library.md shows
them at work. A module is imported when one of its names is first used, so `import hicache` loads
neither numpy nor a device. The types of the names are in `__init__.pyi`; a test holds both lists
equal.
"""

import os
from importlib import import_module
from typing import Any

_NAMES = {
    "hicache.core.actions": (
        *("Abandoned", "Action", "Admitted", "Backup", "Cached", "Copy", "Delete", "Evicted"),
        *("Fetch", "Granted", "KvRemoved", "KvStored", "Load", "Lookup", "Matched", "Outcome"),
        *("Piece", "Pinned", "PinRefused", "Prefetched", "Prefill", "Refused", "Released"),
        *("Restarted", "StateSlots", "StorageDetached", "Store", "Unpinned"),
    ),
    "hicache.core.config": ("Config",),
    "hicache.core.core": ("Core",),
    "hicache.core.errors": ("CallerError", "CoreBug", "HicacheError"),
    "hicache.core.events": (
        *("Aborted", "AdmitWanted", "Arrived", "BackupDone", "ContinueWanted", "DeleteDone"),
        *("DetachWanted", "Event", "EvictWanted", "FetchDone", "Finished", "Flushed", "LoadDone"),
        *("LookupDone", "MatchWanted", "PagesWanted", "PinWanted", "PrefetchLimitReached"),
        *("PrefillDone", "Reply", "Retracted", "StorageAttached", "StoreDone", "TimePassed"),
        *("UnpinWanted",),
    ),
    "hicache.core.eviction_policies": ("EvictionPolicy", "Term", "before"),
    "hicache.core.prefetch_policies": ("PrefetchPolicy",),
    "hicache.core.types": ("Key", "Pages", "Tier"),
    "hicache.core.view": ("CoreView",),
    "hicache.core.write_policies": ("WritePolicy",),
    "hicache.runtime.controller": ("ControllerOptions", "TransferController"),
    "hicache.runtime.driver": (
        *("Driver", "Executor", "ImmediateExecutor", "Observer", "TieredExecutor"),
    ),
    "hicache.runtime.policies": (
        *("add_eviction_policy", "add_prefetch_policy", "add_write_policy"),
    ),
    "hicache.runtime.storage": (
        *("Attachment", "Rank", "StorageExecutor", "StoredPages", "WorkerOptions"),
    ),
    "hicache.memory.pools": ("stored_pools",),
    "hicache.storage.base": ("Storage", "StorageOptions"),
    "hicache.storage.keys": ("Context",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)

if os.environ.get("HICACHE_BUILD") == "compiled":  # here, so that worker processes get it, too
    import_module("hicache.compiled.finder").install()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hicache' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
