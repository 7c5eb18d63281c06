"""The state of LMCache's engine: who holds which memory and which part of the disk, and how often a
cached entry is read and pinned. Scripts copy definitions from here, too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from lmcache.v1.event_manager import EventStatus, EventType

from ..base import Holding, PoolState


def pools_of(rig: Any) -> list[PoolState]:
    """CPU memory, in units of its alignment, and the disk, in the same units."""
    found = [_memory(rig)]
    if rig.disk is not None:
        found.append(_disk(rig))
    return found


def _memory(rig: Any) -> PoolState:
    manager = rig.cpu.memory_allocator.pin_allocator.address_manager
    free = sum(block.size for block in manager._explicit_list) // rig.align
    cached = {id(one): one for one in rig.cpu.hot_cache.values()}
    holdings = [Holding("cache", _units(rig, one)) for one in cached.values()]
    for owner, objects in (("write to disk", _written(rig)), ("load", _loaded(rig))):
        new = {id(one): one for one in objects if id(one) not in cached}
        holdings += [Holding(owner, _units(rig, one)) for one in new.values()]
        cached |= new
    hot = rig.cpu.hot_cache.values()
    pinned = sum(_units(rig, one).size for one in hot if one.meta.pin_count > 0)
    return PoolState("cpu", 1, manager._size // rig.align, free, holdings, protected=pinned)


def _written(rig: Any) -> list[Any]:
    """The memory objects that are on their way to the disk."""
    return [job.named["memory_obj"] for job in rig.threads.jobs if "memory_obj" in job.named]


def _loaded(rig: Any) -> list[Any]:
    """The memory objects into which look-ups load ahead, until a request takes them."""
    found = [one for job in rig.threads.jobs for one in job.named.get("memory_objs", ())]
    done = rig.engine.event_manager.events[EventType.LOADING][EventStatus.DONE]
    for future in done.values():
        if future.exception() is None:
            found += [one for tier in future.result() for _, one in tier]
    return found


def _ahead(rig: Any) -> int:
    """How many look-ups load ahead, or have loaded."""
    events = rig.engine.event_manager.events[EventType.LOADING]
    return sum(map(len, events.values()))


def _units(rig: Any, one: Any) -> Any:
    start = one.meta.address // rig.align
    return np.arange(start, start + one.meta.phy_size // rig.align)


def _disk(rig: Any) -> PoolState:
    """Files have no addresses, so their units are numbered one after another."""
    disk = rig.disk
    free = int(disk.max_cache_size - disk.current_cache_size) // rig.align
    sizes = [one.size for one in disk.dict.values()]
    coming = [one.get_physical_size() for one in _written(rig)]
    cached, more = sum(sizes) // rig.align, sum(coming) // rig.align
    holdings = [
        Holding("cache", np.arange(cached)),
        Holding("write to disk", np.arange(cached, cached + more)),
    ]
    pinned = sum(one.size for one in disk.dict.values() if one.pin_count > 0) // rig.align
    return PoolState("disk", 1, disk.max_cache_size // rig.align, free, holdings, protected=pinned)


def check_counts(rig: Any, cleared: list[str]) -> None:
    """Raises AssertionError unless every cached entry has one reference for the cache and one for
    each write that reads it, and one pin for each look-up that found it. cleared: look-ups of which
    something was removed from outside, so that they need have no pins."""
    reads = Counter(id(one) for one in (*_written(rig), *_loaded(rig)))
    ahead = _ahead(rig)
    wanted: dict[str, list[Any]] = {"LocalCPUBackend": [], "LocalDiskBackend": []}
    for name, by_backend in rig.engine.lookup_pins.items():
        for backend, keys in by_backend.items():
            wanted[backend] += [(key, name not in cleared) for key in keys]
    for key, one in rig.cpu.hot_cache.items():
        want, found = 1 + reads[id(one)], one.meta.ref_count
        few = "few" if found < want else "many"
        text = f"references of a cached object, too {few}: {found}, expected {want}"
        assert want <= found <= want + ahead, text
        if not ahead:
            _check_pins("LocalCPUBackend", key, one.meta.pin_count, wanted["LocalCPUBackend"])
    if rig.disk and not ahead:
        for key, one in rig.disk.dict.items():
            _check_pins("LocalDiskBackend", key, one.pin_count, wanted["LocalDiskBackend"])


def _check_pins(backend: str, key: Any, pins: int, wanted: list[Any]) -> None:
    if not wanted and not pins:
        return
    found = [sure for one, sure in wanted if one == key]
    few = "more" if pins > len(found) else "fewer"
    assert sum(found) <= pins <= len(found), (
        f"{backend} has {few} pins than look-ups: {pins} pins on {key.to_string()}, found by "
        f"{len(found)} look-ups that did not release it"
    )
