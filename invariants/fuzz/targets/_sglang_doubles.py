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
from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler
from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, ReqToTokenPool
from sglang.srt.mem_cache.pool_host.group import HostPoolGroup, PoolEntry
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeNode
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import _CONTEXT as CONTEXT

from invariants.fuzz.target import FREED, MOVING, UNWRITTEN, need
from invariants.fuzz.targets._sglang_storage import Storage, concrete, stand_still

ROWS, WIDTH = 12, 2048
NAMES = {name: getattr(ComponentType, name.upper()) for name in ("full", "swa", "mamba")}
SIDES = {"full": PoolName.KV, "swa": PoolName.SWA, "mamba": PoolName.MAMBA}


@concrete
class Pool(BaseTokenToKVPoolAllocator):  # type: ignore[misc]
    """Pages that are free or taken, and what each slot holds. Page 0 is padding, as in SGLang.
    promise: what a slot will hold when the copies under way have ended. stamp: how often each page
    was freed. Has the face of an allocator, of a pool of states and of a host pool."""

    debug_mode, free_group = True, None
    layout, can_use_write_back_jit, shared_allocation_domain = "layer_first", False, None
    layer_num = size_per_token = 1
    storage_format_tag = None

    def __init__(self, name: str, pages: int, page: int) -> None:
        self.name, self.pages, self.page_size, self.size = name, pages, page, pages * page
        self.logical_size, self.device = self.size, "cpu"
        self.taken, self.stamp = np.zeros(pages + 1, np.bool_), np.zeros(pages + 1, np.int64)
        self.content = np.full((pages + 1) * page, FREED)
        self.promise = self.content.copy()
        self.clear()

    def clear(self) -> None:
        self.free_list = list(range(self.pages, 0, -1))
        self.taken[:] = False
        self.content[:] = self.promise[:] = FREED
        self.stamp += 1

    def available_size(self) -> int:
        return len(self.free_list) * self.page_size

    schedulable_available_size = available_size

    def slots(self, pages: Any) -> Any:
        """The slots of these pages."""
        if self.page_size == 1:
            return pages
        return (pages[:, None] * self.page_size + np.arange(self.page_size)).reshape(-1)

    def used(self) -> Any:
        """The slots of the pages that are taken."""
        return self.slots(self.taken.nonzero()[0])

    def take(self, count: int) -> Any:
        """The slots of as many pages."""
        pages = np.array([self.free_list.pop() for _ in range(count)], np.int64)
        slots = self.slots(pages)
        self.taken[pages] = True
        self.content[slots] = self.promise[slots] = UNWRITTEN
        return slots

    def alloc(self, need_size: int, **_: Any) -> Any:
        need(need_size % self.page_size == 0, "CONTRACT", f"{self.name}.alloc({need_size})")
        if need_size > self.available_size():
            return None
        return torch.from_numpy(self.take(need_size // self.page_size))

    def free(self, free_index: Any) -> int:
        return self.free_page_ids(free_index.numpy() // self.page_size)

    def free_page_ids(self, pages: Any) -> int:
        numbers = sorted(set(pages.tolist()), reverse=True)
        pages = np.array(numbers, np.int64)
        text = f"{self.name}: of pages {numbers} one is freed that is free"
        need(self.taken[pages].all(), "OWN", text, "freed twice")
        slots = self.slots(pages)
        self.taken[pages] = False
        self.stamp[pages] += 1
        self.content[slots] = self.promise[slots] = FREED
        self.free_list += numbers
        return int(slots.size)

    def lend(self, slots: Any) -> Any:
        """By page, the stamps of those that a transfer reads or fills from now on, others -1."""
        pages, lease = slots // self.page_size, np.full_like(self.stamp, -1)
        lease[pages] = np.where(self.taken[pages], self.stamp[pages], -1)
        return lease

    def judge_lent(self, lease: Any, slots: Any, what: str, kind: str) -> None:
        """What was lent was neither freed nor reissued."""
        pages = slots // self.page_size
        lost = pages[lease[pages] != self.stamp[pages]]
        if lost.size:
            text = f"{self.name} pages {np.unique(lost).tolist()} were freed or reissued"
            need(False, "PIN-IO", f"{text} before the {what} ended", kind)

    def get_data_page(self, index: int, flat: bool = True) -> Any:
        return torch.from_numpy(self.content[int(index) : int(index) + self.page_size])

    def set_from_flat_data_page(self, index: int, data_page: Any) -> None:
        self.content[int(index) : int(index) + self.page_size] = data_page.numpy()


@concrete
class Buffers(BaseSWAKVPool):  # type: ignore[misc]
    """Stands in for the tensors of a device pool: only their place and number of layers is read."""

    swa_req_ring_size = full_kv_pool = swa_kv_pool = None
    device, layer_num = "cpu", 1

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def register_mapping(self, full_to_swa_index_mapping: Any) -> None:
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices: Any) -> Any:
        return self.full_to_swa_index_mapping[kv_indices]

    def register_layer_transfer_counter(self, layer_transfer_counter: Any) -> None: ...


# -- copies


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
        if not self.query():
            self.copy.copies.finish(self.copy.number)


class Copy:
    """A copy. segments: of each pool the host pool, the device pool, the slots of both, and their
    leases. moved: the device has done it. done: its event says so."""

    def __init__(self, copies: Any, number: int, to_host: bool, transfers: Any) -> None:
        self.copies, self.number, self.to_host = copies, number, to_host
        self.moved = self.done = False
        self.segments = list[Any]()
        for transfer in transfers:
            host, device = transfer.host_pool, transfer.device_pool.pool
            at, to = transfer.host_indices.numpy().copy(), transfer.device_indices.numpy().copy()
            need(at.size == to.size, "CONTRACT", f"{host.name}: {at.size} slots, {to.size} slots")
            self.segments.append((host, device, at, to, host.lend(at), device.lend(to)))

    def move(self) -> None:
        if self.moved:
            return
        self.moved = True
        name = "backup" if self.to_host else "load"
        for host, device, at, to, host_lease, device_lease in self.segments:
            host.judge_lent(host_lease, at, f"{name} of them", host.name)
            device.judge_lent(device_lease, to, f"{name} of them", device.name)
            if self.to_host:
                same = device.content[to] == host.promise[at]
                host.content[at] = device.content[to]
            else:
                same = device.content[to] == host.content[at]
            need(same.all(), "BYTES", f"{device.name}: a slot changed during its {name}", name)


class Copies:
    """Stands in for SGLang's L2TransferEngine."""

    def __init__(self) -> None:
        self.all: list[Copy] = []
        self.live: list[Copy] = []  # those that are not done

    def submit_device_to_host(self, transfers: Any) -> Any:
        return self._submit(transfers, True)

    def submit_host_to_device(self, transfers: Any, *, on_layer_done: Any = None, **_: Any) -> Any:
        return self._submit(transfers, False, on_layer_done)

    def _submit(self, transfers: Any, to_host: bool, on_layer_done: Any = int) -> Any:
        copy = Copy(self, len(self.all), to_host, transfers)
        self.all.append(copy)
        self.live.append(copy)
        start, finish = Event(), Event()
        finish.copy = Event.behind = copy
        on_layer_done(0)
        Event.behind = None
        return SimpleNamespace(start_event=start, finish_event=finish, timing_enabled=False)

    def finish(self, number: int) -> None:
        """Ends a copy, and before it those of its direction that were submitted earlier."""
        for copy in self.live[:]:
            if copy.number <= number and copy.to_host == self.all[number].to_host:
                copy.move()
                self._end(copy)

    def _end(self, copy: Copy) -> None:
        copy.done = True
        self.live.remove(copy)

    def before_pass(self) -> None:
        """A pass waits on the device for the loads before it (LayerDoneCounter.wait_until)."""
        for copy in self.live:
            if not copy.to_host:
                copy.move()

    def after_passes(self) -> None:
        """A batch begins, so the passes but the last two have ended, and with them their loads."""
        for copy in [copy for copy in self.live if copy.moved and not copy.to_host][:-2]:
            self._end(copy)


class Controller(HybridCacheController):  # type: ignore[misc]
    """SGLang's controller of several pools. What it queues has its content, or its promise of it,
    from then on."""

    sides: dict[Any, Any]

    def write(self, *args: Any, **named: Any) -> Any:
        before = len(self.write_queue)
        result = super().write(*args, **named)
        for queued in self.write_queue[before:]:
            for host, device, at, to in self._segments(queued):
                host.promise[at] = device.content[to]
                host.content[at] = MOVING
        return result

    def load(self, *args: Any, **named: Any) -> Any:
        result = super().load(*args, **named)
        if result is not None:
            for host, device, at, to in self._segments(self.load_queue[-1]):
                text = f"{host.name}: a load reads what no backup has brought yet"
                need((host.content[at] >= 0).all(), "READ-AFTER-ARRIVE", text, host.name)
                device.content[to] = device.promise[to] = host.content[at]
        return result

    def _segments(self, queued: Any) -> list[Any]:
        every = [(PoolName.KV, queued.host_indices, queued.device_indices)]
        more = getattr(queued, "pool_transfers", None) or ()
        every += [(x.name, x.host_indices, x.device_indices) for x in more]
        return [(*self.sides[name], at.numpy(), to.numpy()) for name, at, to in every if at.numel()]


# -- rows, requests and settings


class StateRows(HybridReqToTokenPool):  # type: ignore[misc]
    """The slots of each request, and its states. extra: slots that keep those of page ends."""

    def __init__(self, mamba: Pool, extra: bool) -> None:
        ReqToTokenPool.__init__(self, ROWS, WIDTH, "cpu", False)
        self.mamba_allocator, self.mamba_ckpt_pool = mamba, None
        self.mamba_ping_pong_track_buffer_size = 2
        self.mamba_initial_tracking_slots = 2 if extra else 0
        self.enable_mamba_extra_buffer, self.enable_mamba_extra_buffer_lazy = extra, False
        self.mamba_pool = SimpleNamespace(replayssm_write_pos=None, replayssm_spec_write_pos=None)
        self.mamba_pool.copy_from = self.copy_state
        self.req_index_to_mamba_index_mapping = torch.zeros(ROWS + 1, dtype=torch.int32)
        self.req_index_to_mamba_ping_pong_track_buffer_mapping = torch.zeros(
            (ROWS + 1, 2), dtype=torch.int64
        )
        self.short_conv_pool = self.ngram_pool = SimpleNamespace(clear=int)

    def copy_state(self, source: Any, target: Any) -> None:
        pool = self.mamba_allocator
        pool.content[target.numpy()] = pool.content[source.numpy()]


def token_list(tokens: Sequence[int]) -> Any:
    return array("q", tokens)


def new_request(number: int, tokens: Sequence[int], space: str) -> Any:
    """A request of SGLang."""
    settings = SimpleNamespace(custom_params=None, stop_token_ids=None, ignore_eos=None)
    request = Req(f"r{number}", "", token_list(tokens), settings, extra_key=space or None)
    request.space, request.known, request.copied = space, None, False
    return request


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
    }
    CONTEXT._server_args = SimpleNamespace(_mamba_cache_chunk_size=1, resolved_dict=dict)
    cache_controller.device_module = SimpleNamespace(Event=Event)
    # Nodes are numbered by process: scripts name them, and run in a process of their own.
    UnifiedTreeNode.counter = 0


class World:
    """An opened cache. pools: by name. sides: host and device pool by SGLang's name. mapping: by
    slot, the window slot that it is paired with, or 0. cache: SGLang's. core: what says what is
    cached. storage: what is below the host tier, or None."""

    mapping: Any

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, page = config, config["page"]
        self.parts = parts = config["components"].split("+")
        publish(config)
        self.copies = Copies()
        sizes = {"full": config["pages"], "swa": config["swa_pages"], "mamba": config["mamba"]}
        self.pools = {
            part: Pool(part, sizes[part], 1 if part == "mamba" else page) for part in parts
        }
        mamba = self.pools.get("mamba")
        self.rows: Any = ReqToTokenPool(ROWS, WIDTH, "cpu", False)
        if mamba:
            self.rows = StateRows(mamba, config["extra"])
        self.table = self.rows.req_to_token.numpy()  # the same, which is faster to read
        self.allocator = self._allocator(page)
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
        self.cache: Any = UnifiedRadixCache(params)
        self.core = self.cache.tree_core
        if config["host"]:
            self._attach(page)
        self.storage = self._storage(config.get("storage", "none"))
        self.cache.take_events()

    def busy(self) -> bool:
        """Whether a transfer holds nodes."""
        return bool(self.cache.ongoing_write_through or self.cache.ongoing_load_back)

    def sizes(self, part: str) -> tuple[int, int]:
        """Slots that can be evicted, and that are locked, as the tree core counts them."""
        evictable, protected = f"{part}_evictable_size", f"{part}_protected_size"
        return getattr(self.core, evictable)(), getattr(self.core, protected)()

    def _allocator(self, page: int) -> Any:
        full, swa = self.pools["full"], self.pools.get("swa")
        full._kvcache = Buffers(full)
        if swa is None:
            return full
        pair = SWATokenToKVPoolAllocator(
            full.size, swa.size, page, torch.float32, "cpu", full._kvcache, False
        )
        pair.full_attn_allocator, pair.swa_attn_allocator = full, swa
        self.mapping = pair.full_to_swa_index_mapping.numpy()
        return pair

    def _attach(self, page: int) -> None:
        """The host tier, as SGLang's pool assembler attaches it."""
        cache, config = self.cache, self.config
        self.sides, entries = {}, []
        for part in self.parts:
            device, name = self.pools[part], f"host {part}"
            size = config["host" if part == "full" else f"host_{part}"]
            self.pools[name] = host = Pool(name, size, device.page_size)
            self.sides[SIDES[part]] = host, device
            entry = PoolEntry(SIDES[part], host, Buffers(device), int, part == "full")
            if part != "full":
                evict = getattr(hybrid_pool_assembler, f"_evict_{part}_for_device_alloc")
                entry.host_evict_fn = lambda slots, of=NAMES[part]: cache.evict_host(slots, of)
                entry.device_evict_fn = lambda slots, of=evict: of(cache, slots)
                entry.device_alloc_fn, entry.device_free_fn = device.alloc, device.free
            entries.append(entry)
            name = "_mamba_pool_host" if part == "mamba" else f"_{part}_kv_pool_host"
            setattr(cache.components[NAMES[part]], name, host)
        cache.host_pool_group = HostPoolGroup(entries)
        cache.load_cache_event = threading.Event()
        if config.get("storage", "none") != "none":
            stand_still()
        cache.cache_controller = controller = Controller(
            self.allocator,
            cache.host_pool_group,
            page,
            None,
            cache.load_cache_event,
            write_policy=config["policy"],
            io_backend="kernel",
        )
        controller.sides, controller.l2_transfer_engine = self.sides, self.copies
        self.core.set_hicache_enabled()
        if "swa" in self.parts:
            self.core.has_swa_host_pool = True
        cache.write_through_threshold = 1 if config["policy"] == "write_through" else 2
        cache.is_write_back = config["policy"] == "write_back"
        cache.load_back_threshold = config["load_from"]

    def _storage(self, name: str) -> Any:
        if name == "none":
            return None
        kind = Storage
        if name == "hicache":
            kind = import_module("invariants.fuzz.targets._sglang_hicache").Folder
        storage = kind(self)
        storage.attach()
        return storage
