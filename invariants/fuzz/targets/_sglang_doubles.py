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
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sglang.srt.managers import cache_controller
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.allocator import BaseTokenToKVPoolAllocator
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
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeNode
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import _CONTEXT as CONTEXT

from invariants.fuzz.target import FREED, MOVING, UNWRITTEN, need
from invariants.fuzz.targets._sglang_copies import Copies, Event
from invariants.fuzz.targets._sglang_storage import Storage
from invariants.fuzz.targets._sglang_threads import stand_still

ROWS, WIDTH = 12, 2048
NAMES = {name: getattr(ComponentType, name.upper()) for name in ("full", "swa", "mamba")}


class Pool(BaseTokenToKVPoolAllocator):  # type: ignore[misc]
    """Pages that are free or taken, and what each slot holds. Page 0 is padding, as in SGLang.
    promise: what a slot will hold when the copies under way have ended. stamp: how often each page
    was taken. Has the face of an allocator, of a pool of states and of a host pool.
    """

    debug_mode = True
    layout, can_use_write_back_jit, shared_allocation_domain = "layer_first", False, None
    layer_num = size_per_token = 1
    storage_format_tag = None
    real: Any = None  # the store that takes and gives its bytes, if one does

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
        self._held_at, self._held = -1, np.zeros(0, np.int64)
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

    def held(self) -> Any:
        """The slots of the pages that are taken."""
        if self._held_at != self.changes:
            self._held_at, self._held = self.changes, self.slots(self.taken.nonzero()[0])
        return self._held

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

    def get_dummy_flat_data_page(self) -> Any:
        return torch.zeros(self.page_size, dtype=torch.int64)

    def set_from_flat_data_page(self, index: int, data_page: Any) -> None:
        slots = np.arange(index, index + self.page_size)
        if self.real is None:
            data_page(self, slots)
        else:
            self.content[slots] = data_page.numpy()
            self.real.filled(self, slots)

    def get_data_page(self, index: int, flat: bool = True) -> Any:
        if self.real is None:
            return np.arange(index, index + self.page_size)
        return torch.from_numpy(self.content[int(index) : int(index) + self.page_size])

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

    def set_swa_loc(self, loc: Any) -> None: ...


class Controller(HybridCacheController):  # type: ignore[misc]
    """SGLang's controller of several pools. What it queues has its content, or its promise of it,
    from then on."""

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
        more = getattr(queued, "pool_transfers", None) or ()
        every += [(x.name, x.host_indices, x.device_indices) for x in more]
        return [(*self.pools[name], at.numpy(), to.numpy()) for name, at, to in every if at.numel()]


class Rows(ReqToTokenPool):  # type: ignore[misc]
    """The slots of each request, by position."""

    def __init__(self, count: int) -> None:
        row_tensors(self, count)


class StateRows(HybridReqToTokenPool):  # type: ignore[misc]
    """The same with the states of each request. extra: slots that keep those of page ends."""

    def __init__(self, count: int, mamba: Pool, extra: bool) -> None:
        row_tensors(self, count)
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
        self.req_index_to_mamba_index_mapping = torch.zeros(count + 1, dtype=torch.int32)
        self.req_index_to_mamba_ping_pong_track_buffer_mapping = torch.zeros(
            (count + 1, 2), dtype=torch.int64
        )
        self.short_conv_pool = self.ngram_pool = SimpleNamespace(clear=int)

    def copy_state(self, source: Any, target: Any) -> None:
        pool = self.mamba_allocator
        pool.content[target.numpy()] = pool.content[source.numpy()]
        pool.changes += 1


def row_tensors(rows: Any, count: int) -> None:
    rows.size, rows._alloc_size, rows.max_context_len, rows.device = count, count + 1, WIDTH, "cpu"
    rows.req_to_token = torch.zeros((count + 1, WIDTH), dtype=torch.int32)
    rows.table = rows.req_to_token.numpy()  # the same, which is faster to read
    rows.free_slots = list(range(1, count + 1))
    rows.req_generation = torch.zeros(count + 1, dtype=torch.int64)
    rows._aux_cache = None


def count_anew() -> None:
    """What SGLang numbers by process begins anew with each cache: scripts name nodes by their
    numbers, and run in a process of their own."""
    UnifiedTreeNode.counter = 0


def publish(config: dict[str, Any]) -> None:
    """Settings that a server would publish for its process, and events of a device."""
    mamba = SimpleNamespace(
        mamba_max_states_per_path=config["states"], enable_mamba_extra_buffer_lazy=False
    )
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = config["core"]
    CONTEXT._config_bags = {
        "exec": SimpleNamespace(mamba=mamba),
        "spec": SimpleNamespace(speculative_algorithm=None),
        "serving": SimpleNamespace(strip_thinking_cache=False),
        "disagg": SimpleNamespace(disaggregation_mode="null"),
        "schedule": SimpleNamespace(disable_overlap_schedule=True),
        "memory": SimpleNamespace(enable_int8_mamba_checkpoint=False, page_size=config["page"]),
    }
    CONTEXT._server_args = SimpleNamespace(_mamba_cache_chunk_size=1)
    cache_controller.device_module = SimpleNamespace(Event=Event, Stream=SimpleNamespace)
    if config.get("storage", "none") != "none":
        stand_still()


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


def storage_of(config: dict[str, Any]) -> Any:
    """The store below a cache."""
    if config["storage"] in ("hicache", "hicache_pages"):
        return import_module("invariants.fuzz.targets._sglang_hicache").Folder
    return Storage


class World:
    """An opened cache. pools: by name. cache: SGLang's. core: what says what is cached."""

    copies: Copies
    rows: Any
    mapping: Any  # by slot, the window slot that it is paired with, or 0
    cache: Any
    core: Any
    storage: Storage | None = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, page = config, config["page"]
        parts = config["components"].split("+")
        count_anew()
        publish(config)
        self.copies = Copies()
        self.pools = {"full": Pool("full", config["pages"], page)}
        if "swa" in parts:
            self.pools["swa"] = Pool("swa", config["swa_pages"], page)
        if "mamba" in parts:
            self.pools["mamba"] = Pool("mamba", config["mamba"], 1)
        rows = config.get("rows", ROWS)
        if "mamba" in parts:
            self.rows = StateRows(rows, self.pools["mamba"], config["extra"])
        else:
            self.rows = Rows(rows)
        self.allocator = self._allocator(page)
        self.chains = dict[Any, Any]()
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            page_size=page,
            eviction_policy=config["order"],
            sliding_window_size=config["window"] if "swa" in parts else None,
            enable_kv_cache_events=config["events"],
            is_eagle=config["bigram"],
            enable_mamba_extra_buffer="mamba" in parts and config["extra"],
            tree_components=tuple(NAMES[part] for part in parts),
        )
        self._open(params, parts)
        self.cache.take_events()

    def _open(self, params: Any, parts: Sequence[str]) -> None:
        self.cache = UnifiedRadixCache(params)
        self.core = self.cache.tree_core
        if self.config["host"]:
            self._attach(parts)
        if self.config.get("storage", "none") != "none":
            self.storage = storage_of(self.config)(self)
            self.storage.attach()

    def busy(self) -> bool:
        """Whether a transfer holds nodes."""
        return bool(self.cache.ongoing_write_through or self.cache.ongoing_load_back)

    def _allocator(self, page: int) -> Any:
        full, swa = self.pools["full"], self.pools.get("swa")
        full._kvcache = Buffers(full)
        if swa is None:
            return full
        made = SWATokenToKVPoolAllocator(
            full.size, swa.size, page, torch.float32, "cpu", full._kvcache, False
        )
        made.full_attn_allocator, made.swa_attn_allocator = full, swa
        self.mapping = made.full_to_swa_index_mapping.numpy()
        return made

    def _host(self, part: str, page: int) -> Pool:
        size = {"full": "host", "swa": "host_swa", "mamba": "host_mamba"}[part]
        self.pools[f"host {part}"] = found = Pool(f"host {part}", self.config[size], page)
        return found

    def _attach(self, parts: Sequence[str]) -> None:
        """The host tier, as SGLang's pool assembler attaches it."""
        cache, config, page = self.cache, self.config, self.config["page"]
        known = {"full": PoolName.KV, "mamba": PoolName.MAMBA}
        if "swa" in parts:
            known["swa"] = PoolName.SWA
        entries, sides = [], {}
        for part in parts:
            host, device = self._host(part, 1 if part == "mamba" else page), self.pools[part]
            sides[known[part]] = host, device
            entry = PoolEntry(known[part], host, Buffers(device), int, part == "full")
            if part != "full":
                evicts = Evicts(cache, NAMES[part])
                entry.host_evict_fn, entry.device_evict_fn = evicts.host, evicts.device
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
        self.sides = sides
        self.core.set_hicache_enabled()
        if "swa" in parts:
            self.core.has_swa_host_pool = True
        cache.write_through_threshold = 1 if config["policy"] == "write_through" else 2
        cache.is_write_back = config["policy"] == "write_back"
        cache.load_back_threshold = config["load_from"]


def token_list(tokens: Sequence[int]) -> Any:
    return array("q", tokens)


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
    made = Req(f"r{number}", "", token_list(tokens), settings, extra_key=space or None)
    made.space = space
    made.known = None
    return made
