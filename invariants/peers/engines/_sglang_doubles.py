"""Doubles for SGLang's cache: pools that follow contents, copies that end late, rows, and settings.

The cache, its tree cores, the transfer controller, the allocator that pairs full and window slots,
the requests and the calls of the scheduler are SGLang's own. Doubled is what has a device behind
it: the pages of each pool, the copies between them, and the tensors of the rows. Copies of one
direction end in the order in which they were submitted, as on a stream; what they write has no
content before that, but loaded slots may be matched at once, since readers wait for each layer.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sglang.srt import runtime_context
from sglang.srt.managers import cache_controller
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
from sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler import (
    _evict_mamba_for_device_alloc,
    _evict_swa_for_device_alloc,
)
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool
from sglang.srt.mem_cache.pool_host.group import HostPoolGroup, PoolEntry
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from ..base import FREED, MOVING, UNWRITTEN, need

ROWS, WIDTH = 12, 2048
NAMES = {"full": ComponentType.FULL, "swa": ComponentType.SWA, "mamba": ComponentType.MAMBA}


class Pool(BaseTokenToKVPoolAllocator):  # type: ignore[misc]
    """Pages that are free or taken, and what each slot holds. Page 0 is padding, as in SGLang.
    promise: what a slot will hold when the copies under way have ended. stamp: how often each page
    was taken. Has the face of an allocator, of a pool of states and of a host pool.
    """

    debug_mode = True
    layout, can_use_write_back_jit, shared_allocation_domain = "layer_first", False, None
    layer_num = size_per_token = 1

    def __init__(self, name: str, pages: int, page: int) -> None:
        self.name, self.pages, self.page_size, self.size = name, pages, page, pages * page
        self.logical_size, self.device = self.size, "cpu"
        self.free_group: list[Any] | None = None
        self.changes = 0  # grows with every change
        # Few slots change at a time, which lists are faster for, and all are compared at once.
        self._taken, self._stamp = array("b", [0]) * (pages + 1), array("q", [0]) * (pages + 1)
        self._content = array("q", [FREED]) * ((pages + 1) * page)
        self._promise = self._content[:]
        self.taken = np.frombuffer(self._taken, np.bool_)
        self.stamp = np.frombuffer(self._stamp, np.int64)
        self.content = np.frombuffer(self._content, np.int64)
        self.promise = np.frombuffer(self._promise, np.int64)
        self.clear()

    def clear(self) -> None:
        self.free_list = list(range(self.pages, 0, -1))
        self.taken[:] = False
        self.content[:] = self.promise[:] = FREED
        self.stamp += 1
        self.changes += 1

    def available_size(self) -> int:
        return len(self.free_list) * self.page_size

    schedulable_available_size = available_size

    def slots(self, pages: Any) -> Any:
        """The slots of these pages."""
        if self.page_size == 1:
            return pages
        return (pages[:, None] * self.page_size + np.arange(self.page_size)).reshape(-1)

    def take(self, count: int) -> list[int] | None:
        """The slots of as many pages, or None if there are too few."""
        if count > len(self.free_list):
            return None
        found = list[int]()
        for _ in range(count):
            page = self.free_list.pop()
            self._taken[page] = 1
            self._stamp[page] += 1
            found += range(page * self.page_size, (page + 1) * self.page_size)
        for slot in found:
            self._content[slot] = self._promise[slot] = UNWRITTEN
        self.changes += 1
        return found

    def alloc(self, need_size: int, **_: Any) -> Any:
        need(need_size % self.page_size == 0, "CONTRACT", f"{self.name}.alloc({need_size})")
        found = self.take(need_size // self.page_size)
        return None if found is None else torch.tensor(found, dtype=torch.int64)

    def free(self, free_index: Any) -> int:
        if self.free_group is not None:
            self.free_group.append(free_index.clone())
            return 0
        return self._free({slot // self.page_size for slot in free_index.tolist()})

    def free_page_ids(self, pages: Any) -> int:
        return self._free(set(pages.tolist()))

    def _free(self, pages: set[int]) -> int:
        need(0 not in pages, "OWN", f"{self.name}: the padding page is freed", "padding freed")
        for page in pages:
            if not self._taken[page]:
                text = f"{self.name}: page {page} is freed, and is free"
                need(False, "OWN", text, "freed twice")
            self._taken[page] = 0
            for slot in range(page * self.page_size, (page + 1) * self.page_size):
                self._content[slot] = self._promise[slot] = FREED
        self.free_list += sorted(pages, reverse=True)
        self.changes += 1
        return len(pages) * self.page_size

    def alloc_group_begin(self, *_: Any) -> None: ...

    def alloc_group_end(self) -> None: ...

    def destroy(self) -> None: ...


class Buffers(BaseSWAKVPool):  # type: ignore[misc]
    """Stands in for the tensors of a device pool: only their place and number of layers is read."""

    swa_req_ring_size = None
    device, layer_num, page_size = "cpu", 1, 1

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.full_kv_pool = self.swa_kv_pool = None

    def register_mapping(self, full_to_swa_index_mapping: Any) -> None:
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices: Any) -> Any:
        return self.full_to_swa_index_mapping[kv_indices]

    def register_layer_transfer_counter(self, layer_transfer_counter: Any) -> None: ...

    def get_state_buf_infos(self) -> Any: ...

    def get_key_buffer(self, layer_id: int) -> Any: ...

    def get_value_buffer(self, layer_id: int) -> Any: ...

    def get_kv_buffer(self, layer_id: int) -> Any: ...

    def set_kv_buffer(self, *_: Any, **__: Any) -> Any: ...


class Event:
    """An event of a device: reached when the copy that it was recorded behind has ended."""

    behind: Any = None  # the copy that is being submitted

    def __init__(self, **_: Any) -> None:
        self.copy: Any = None

    def record(self, *_: Any) -> None:
        self.copy = Event.behind

    def query(self) -> bool:
        return self.copy is None or self.copy.done

    def synchronize(self) -> None:
        if self.copy is not None and not self.copy.done:
            self.copy.copies.finish(self.copy.number)


class Copy:
    """A copy. legs: of each pool the host slots, the device slots, and how often the pages of both
    had been taken. moved: the device has done it. done: its event says so."""

    def __init__(self, copies: Any, number: int, to_host: bool, legs: list[Any]) -> None:
        self.copies, self.number, self.to_host, self.legs = copies, number, to_host, legs
        self.moved = self.done = False

    def move(self) -> None:
        self.moved = True
        name = "backup" if self.to_host else "load"
        for host, device, at, to, *stamps in self.legs:
            for pool, slots, stamp in ((host, at, stamps[0]), (device, to, stamps[1])):
                pages = slots // pool.page_size
                kept = (pool.stamp[pages] == stamp) & pool.taken[pages]
                text = (
                    f"{pool.name} pages {np.unique(pages[~kept]).tolist()} were freed or reissued"
                )
                need(kept.all(), "PIN-IO", f"{text} before the {name} of them ended", pool.name)
            if self.to_host:
                same = device.content[to] == host.promise[at]
                host.content[at] = device.content[to]
                host.changes += 1
            else:
                same = device.content[to] == host.content[at]
            need(same.all(), "BYTES", f"{device.name}: a slot changed during its {name}", name)


class Copies:
    """Stands in for SGLang's L2TransferEngine."""

    def __init__(self) -> None:
        self.all: list[Copy] = []

    def submit_device_to_host(self, transfers: Any) -> Any:
        return self._submit(transfers, True)

    def submit_host_to_device(self, transfers: Any, *, on_layer_done: Any = None, **_: Any) -> Any:
        return self._submit(transfers, False, on_layer_done)

    def _submit(self, transfers: Any, to_host: bool, on_layer_done: Any = None) -> Any:
        legs = [_leg(one.host_pool, one.device_pool.pool, one) for one in transfers]
        for host, device, at, to, *_ in legs if to_host else ():
            new = host.promise[at] == UNWRITTEN  # up to 0.5.20 nothing is queued before
            host.promise[at[new]], host.content[at[new]] = device.content[to[new]], MOVING
        copy = Copy(self, len(self.all), to_host, legs)
        self.all.append(copy)
        start, finish = Event(), Event()
        finish.copy = Event.behind = copy
        if on_layer_done is not None:
            on_layer_done(0)
        Event.behind = None
        return SimpleNamespace(start_event=start, finish_event=finish, timing_enabled=False)

    def finish(self, number: int) -> None:
        """Ends a copy, and before it those of its direction that were submitted earlier."""
        self._move(number, self.all[number].to_host)
        for copy in self.all[: number + 1]:
            copy.done = copy.done or (copy.moved and copy.to_host == self.all[number].to_host)

    def before_pass(self) -> None:
        """A pass waits on the device for the loads before it (LayerDoneCounter.wait_until)."""
        self._move(len(self.all) - 1, False)

    def after_passes(self) -> None:
        """A batch begins, so the passes but the last two have ended, and with them their loads."""
        for copy in [one for one in self.all if one.moved and not one.to_host][:-2]:
            copy.done = True

    def _move(self, number: int, to_host: bool) -> None:
        for copy in self.all[: number + 1]:
            if copy.to_host == to_host and not copy.moved:
                copy.move()


def _leg(host: Any, device: Any, transfer: Any) -> Any:
    at, to = np.array(transfer.host_indices), np.array(transfer.device_indices)
    need(at.size == to.size, "CONTRACT", f"{host.name}: {at.size} slots from or to {to.size}")
    for pool, slots in ((host, at), (device, to)):
        free = np.unique(slots[~pool.taken[slots // pool.page_size]]).tolist()
        need(not free, "PIN-IO", f"a copy of {pool.name} slots {free}, which are free", pool.name)
    return (
        host,
        device,
        at,
        to,
        host.stamp[at // host.page_size],
        device.stamp[to // device.page_size],
    )


class Controller(HybridCacheController):  # type: ignore[misc]
    """SGLang's controller. What it queues has its content, or its promise of it, from then on."""

    pools: dict[Any, Any]

    def write(self, *args: Any, **named: Any) -> Any:
        before = len(self.write_queue)
        found = super().write(*args, **named)
        for queued in self.write_queue[before:]:
            for host, device, at, to in self._sides(queued):
                host.promise[at] = device.content[to]
                host.content[at] = MOVING
                host.changes += 1
        return found

    def load(self, *args: Any, **named: Any) -> Any:
        found = super().load(*args, **named)
        if found is not None:
            for host, device, at, to in self._sides(self.load_queue[-1]):
                text = f"{host.name}: a load reads what no backup has brought yet"
                need((host.content[at] >= 0).all(), "READ-AFTER-ARRIVE", text, host.name)
                device.content[to] = device.promise[to] = host.content[at]
                device.changes += 1
        return found

    def _sides(self, queued: Any) -> list[Any]:
        every = [(PoolName.KV, queued.host_indices, queued.device_indices)]
        every += [(x.name, x.host_indices, x.device_indices) for x in queued.pool_transfers or ()]
        return [
            (*self.pools[name], np.asarray(at), np.asarray(to)) for name, at, to in every if len(at)
        ]


class Rows(ReqToTokenPool):  # type: ignore[misc]
    """The slots of each request, by position."""

    def __init__(self) -> None:
        row_tensors(self)


class StateRows(HybridReqToTokenPool):  # type: ignore[misc]
    """The same with the states of each request. extra: slots that keep those of page ends."""

    def __init__(self, mamba: Pool, extra: bool) -> None:
        row_tensors(self)
        self.mamba_allocator, self.mamba_ckpt_pool = mamba, None
        self.mamba_ping_pong_track_buffer_size = 2
        self.mamba_initial_tracking_slots = 2 if extra else 0
        self.enable_mamba_extra_buffer, self.enable_mamba_extra_buffer_lazy = extra, False
        self.mamba_pool = SimpleNamespace(
            replayssm_write_pos=None,
            replayssm_spec_write_pos=None,
            replayssm_cache_base=None,
            copy_from=self.copy_state,
            size=mamba.size,
        )
        self.req_index_to_mamba_index_mapping = torch.zeros(ROWS + 1, dtype=torch.int32)
        self.req_index_to_mamba_ping_pong_track_buffer_mapping = torch.zeros(
            (ROWS + 1, 2), dtype=torch.int64
        )
        self.short_conv_pool = self.ngram_pool = SimpleNamespace(clear=int)

    def copy_state(self, source: Any, target: Any) -> None:
        pool = self.mamba_allocator
        pool.content[np.asarray(target)] = pool.content[np.asarray(source)]


def row_tensors(rows: Any) -> None:
    rows.size, rows._alloc_size, rows.max_context_len, rows.device = ROWS, ROWS + 1, WIDTH, "cpu"
    rows.req_to_token = torch.zeros((ROWS + 1, WIDTH), dtype=torch.int32)
    rows.free_slots = list(range(1, ROWS + 1))
    rows.req_generation = torch.zeros(ROWS + 1, dtype=torch.int64)
    rows._aux_cache = None


def publish(config: dict[str, Any]) -> None:
    """Settings that a server would publish for its process, and events of a device."""
    mamba = SimpleNamespace(
        mamba_max_states_per_path=config["states"], enable_mamba_extra_buffer_lazy=False
    )
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = config["core"]
    runtime_context._CONTEXT._config_bags = {
        "exec": SimpleNamespace(mamba=mamba),
        "spec": SimpleNamespace(speculative_algorithm=None),
        "serving": SimpleNamespace(strip_thinking_cache=False),
        "disagg": SimpleNamespace(disaggregation_mode="null"),
        "schedule": SimpleNamespace(disable_overlap_schedule=True),
        "memory": SimpleNamespace(enable_int8_mamba_checkpoint=False, page_size=config["page"]),
    }
    runtime_context._CONTEXT._server_args = SimpleNamespace(_mamba_cache_chunk_size=1)
    cache_controller.device_module = SimpleNamespace(Event=Event, Stream=SimpleNamespace)


class World:
    """An opened cache. pools: by name. cache: SGLang's."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, page = config, config["page"]
        parts = config["components"].split("+")
        publish(config)
        self.pools = {"full": Pool("full", config["pages"], page)}
        if "swa" in parts:
            self.pools["swa"] = Pool("swa", config["swa_pages"], page)
        if "mamba" in parts:
            self.pools["mamba"] = Pool("mamba", config["mamba"], 1)
        self.rows = StateRows(self.pools["mamba"], config["extra"]) if "mamba" in parts else Rows()
        self.allocator = self._allocator(page)
        self.copies, self.chains = Copies(), dict[Any, Any]()
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            page_size=page,
            eviction_policy=config["order"],
            sliding_window_size=config["window"] if "swa" in parts else None,
            tree_components=tuple(NAMES[part] for part in parts),
            enable_kv_cache_events=config["events"],
            is_eagle=config["bigram"],
            enable_mamba_extra_buffer="mamba" in parts and config["extra"],
        )
        self.cache = UnifiedRadixCache(params)
        self.core = self.cache.tree_core
        if config["host"]:
            self._attach(parts)
        self.cache.take_events()

    def _allocator(self, page: int) -> Any:
        full, swa = self.pools["full"], self.pools.get("swa")
        full._kvcache = Buffers(full)
        if swa is None:
            return full
        made = SWATokenToKVPoolAllocator(
            full.size, swa.size, page, torch.float32, "cpu", full._kvcache, False
        )
        made.full_attn_allocator, made.swa_attn_allocator = full, swa
        return made

    def _attach(self, parts: Sequence[str]) -> None:
        """The host tier, as SGLang's pool assembler attaches it."""
        cache, config, page = self.cache, self.config, self.config["page"]
        sizes = {"full": config["host"], "swa": config["host_swa"], "mamba": config["host_mamba"]}
        known = {"full": PoolName.KV, "swa": PoolName.SWA, "mamba": PoolName.MAMBA}
        entries, sides = [], {}
        for part in parts:
            host = Pool(f"host {part}", sizes[part], 1 if part == "mamba" else page)
            device = self.pools[part]
            self.pools[host.name], sides[known[part]] = host, (host, device)
            entry = PoolEntry(known[part], host, Buffers(device), int, part == "full")
            if part != "full":
                entry.host_evict_fn = Evicts(cache, NAMES[part]).host
                entry.device_evict_fn = Evicts(cache, NAMES[part]).device
                entry.device_alloc_fn, entry.device_free_fn = device.alloc, device.free
            entries.append(entry)
            name = "_mamba_pool_host" if part == "mamba" else f"_{part}_kv_pool_host"
            setattr(cache.components[NAMES[part]], name, host)
            setattr(cache, name[1:], host)
        cache.host_pool_group = HostPoolGroup(entries)
        cache.load_cache_event = threading.Event()
        cache.cache_controller = made = Controller(
            self.allocator,
            cache.host_pool_group,
            page,
            None,
            cache.load_cache_event,
            write_policy=config["policy"],
            io_backend="kernel",
        )
        made.pools, made.l2_transfer_engine = sides, self.copies
        self.core.set_hicache_enabled()
        if "swa" in parts:
            self.core.has_swa_host_pool = True
        cache.write_through_threshold = 1 if config["policy"] == "write_through" else 2
        cache.is_write_back = config["policy"] == "write_back"
        cache.load_back_threshold = config["load_from"]


class Evicts:
    """What a pool calls when it is short, as in SGLang's pool assembler."""

    def __init__(self, cache: Any, component: Any) -> None:
        self.cache, self.component = cache, component

    def host(self, slots: int) -> Any:
        return self.cache.evict_host(slots, self.component)

    def device(self, slots: int) -> None:
        if self.component == ComponentType.MAMBA:
            _evict_mamba_for_device_alloc(self.cache, slots)
        else:
            _evict_swa_for_device_alloc(self.cache, slots)


def new_request(number: int, tokens: Sequence[int], space: str) -> Any:
    """A request of SGLang."""
    settings = SimpleNamespace(
        max_new_tokens=WIDTH,
        custom_params=None,
        stop_token_ids=None,
        stop_strs=[],
        stop_regex_strs=[],
        ignore_eos=False,
    )
    made = Req(f"r{number}", "", array("q", tokens), settings, extra_key=space or None)
    made.space = space
    return made
