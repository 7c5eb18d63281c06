"""Doubles for SGLang's caches whose nodes are objects: RadixCache, HiRadixCache, SWARadixCache,
MambaRadixCache, and UnifiedRadixCache up to 0.5.15.

Real are the cache and its controller; the pages, rows and copies are those of _sglang_doubles. Up
to 0.5.17 a controller copies with the host pool's own methods on a stream, which are doubled here:
what is submitted on one stream is one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sglang.srt.managers.cache_controller import HiCacheController
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, MHATokenToKVPool

from ..base import MOVING, UNWRITTEN
from ._sglang_copies import Copies, Copy, Event, _leg
from ._sglang_doubles import (
    CONTEXT,
    NAMES,
    Buffers,
    Evicts,
    Pool,
    Queues,
    World,
    publish,
)
from ._sglang_names import anywhere, is_there

CACHES = {
    "radix": ("mem_cache.radix_cache", "RadixCache", "full"),
    "hiradix": ("mem_cache.hiradix_cache", "HiRadixCache", "full"),
    "swa": ("mem_cache.swa_radix_cache", "SWARadixCache", "full+swa"),
    "mamba": ("mem_cache.mamba_radix_cache", "MambaRadixCache", "full+mamba"),
    "unified": ("mem_cache.unified_cache_components", "UnifiedRadixCache", ""),
}
CONTROLLERS = ("managers.cache_controller", "mem_cache.hybrid_cache.hybrid_cache_controller")
TokenToKVPoolAllocator: Any = anywhere("TokenToKVPoolAllocator", "mem_cache.allocator")
UnifiedRadixCache = anywhere("UnifiedRadixCache", "mem_cache.unified_radix_cache")


def caches_of_release() -> tuple[str, ...]:
    """The caches that this release has, and that have no peer of their own."""
    return tuple(name for name, (module, *_) in CACHES.items() if is_there(module))


class Tokens(Pool, TokenToKVPoolAllocator):  # type: ignore[misc]
    """Pages, as MambaRadixCache asks for them by their class."""

    copies: Any

    def fork_from(self, source: Any) -> Any:
        """A state in a new slot, up to 0.5.12."""
        found = self.alloc(1)
        if found is not None:
            self.copy_from(source, found)
        return found

    def copy_from(self, source: Any, target: Any) -> None:
        self.content[np.asarray(target)] = self.content[np.asarray(source)]


class HostPages(Tokens):
    """Pages of a host pool, with the copies that it begins."""

    def backup_from_device_all_layer(
        self, device_pool: Any, host_indices: Any, device_indices: Any, io_backend: str
    ) -> None:
        self.copies.add(self, device_pool.pool, host_indices, device_indices, True)

    def load_to_device_per_layer(
        self, device_pool: Any, host_indices: Any, device_indices: Any, layer_id: int, backend: str
    ) -> None:
        self.copies.add(self, device_pool.pool, host_indices, device_indices, False)


class Streams(Copies):
    """Copies that are submitted pool by pool. Is the block of a stream, too. at_once: backups end
    when they begin."""

    def __init__(self, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once

    def __enter__(self) -> None:
        Event.behind = None

    def __exit__(self, *_: object) -> None:
        if self.at_once and Event.behind is not None and Event.behind.to_host:
            self.finish(Event.behind.number)
        Event.behind = None

    def add(self, host: Any, device: Any, at: Any, to: Any, to_host: bool) -> None:
        if Event.behind is None:
            Event.behind = Copy(self, len(self.all), to_host, [])
            self.all.append(Event.behind)
            self.still.append(Event.behind)
        leg = _leg(host, device, SimpleNamespace(host_indices=at, device_indices=to))
        if to_host:
            new = host.promise[leg[2]] == UNWRITTEN
            host.promise[leg[2][new]] = device.content[leg[3][new]]
            host.content[leg[2][new]] = MOVING
        Event.behind.legs.append(leg)


class Awaited(Event):
    def wait(self, *_: Any) -> None: ...


class Attention(Buffers, MHATokenToKVPool):  # type: ignore[misc]
    """Buffers of the kind that HiRadixCache makes a plain host pool for."""


class OnePool(Queues, HiCacheController):  # type: ignore[misc]
    """SGLang's controller of one pool."""


class Nodes:
    """What a cache whose nodes are objects has, asked for as a tree core is."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)

    def full_evictable_size(self) -> int:
        return self._size("evictable_size")

    def full_protected_size(self) -> int:
        return self._size("protected_size")

    def _size(self, name: str) -> int:
        """RadixCache has one size, the others one for each part."""
        parts = self.cache.supports_swa() or self.cache.supports_mamba()
        return int(getattr(self.cache, f"full_{name}" if parts else name)())

    def every(self) -> Sequence[Any]:
        """Every node but the root."""
        found, waiting = list[Any](), [self.cache.root_node]
        while waiting:
            below = list(waiting.pop().children.values())
            found += below
            waiting += below
        return found

    def all_values_flatten(self) -> Any:
        return self._all("full", "value")

    def all_mamba_values_flatten(self) -> Any:
        return self._all("mamba", "mamba_value")

    def _all(self, part: str, field: str) -> Any:
        values = [_value(node, part, field) for node in self.every()]
        return torch.cat([one for one in values if one is not None])

    def get_component_device_value(self, node: Any, component: Any) -> Any:
        return _value(node, "mamba", "mamba_value")

    def node_by_id(self, node: Any) -> Any:
        return node


def _value(node: Any, part: str, field: str) -> Any:
    if hasattr(node, "component_data"):
        return node.component_data[NAMES[part]].value
    return getattr(node, field)


def settings(config: dict[str, Any]) -> SimpleNamespace:
    """Settings of a server that the caches read."""
    return SimpleNamespace(
        attention_backend="torch_native",
        extra_metric_labels=None,
        hicache_io_backend="kernel",
        hicache_mem_layout="layer_first",
        hicache_ratio=2.0,
        hicache_size=0,
        hicache_storage_backend=None,
        hicache_storage_backend_extra_config=None,
        hicache_storage_prefetch_policy="best_effort",
        hicache_write_policy=config["policy"],
        mamba_cache_chunk_size=1,
        page_size=config["page"],
        served_model_name="",
        speculative_algorithm=None,
        strip_thinking_cache=False,
        enable_int8_mamba_checkpoint=False,
    )


class DeviceEvicts(Evicts):
    def device(self, slots: int) -> None:
        part = "mamba_num" if self.component == NAMES["mamba"] else "swa_num_tokens"
        self.cache.evict(EvictParams(**{"num_tokens": 0, part: slots}))


class LegacyWorld(World):
    EVICTS = DeviceEvicts
    copies: Streams

    def publish(self) -> None:
        config, self.copies = self.config, Streams(self.config["at_once"])
        if is_there("mem_cache.unified_cache"):
            publish(config)
            CONTEXT._config_bags |= dict.fromkeys(
                ("memory", "observability", "serving", "spec"), settings(config)
            )
        elif hasattr(CONTEXT, "_server_args"):  # 0.5.15
            CONTEXT._server_args = settings(config)
        vars(import_module("sglang.srt.server_args"))["_global_server_args"] = settings(config)

    def _pool(self, name: str, pages: int, page: int) -> Pool:
        found = (
            HostPages(name, pages, page) if name.startswith("host") else Tokens(name, pages, page)
        )
        found.copies = self.copies
        return found

    def _buffers(self, pool: Pool) -> Any:
        return Attention(pool)

    def _more(self, parts: Sequence[str]) -> dict[str, Any]:
        return super()._more(parts) if self.config["cache"] == "unified" else {}

    def _open(self, params: Any, parts: Sequence[str]) -> None:
        device = SimpleNamespace(Event=Awaited, Stream=SimpleNamespace, stream=self._stream)
        for module in CONTROLLERS:
            vars(import_module(f"sglang.srt.{module}"))["device_module"] = device
        if (
            "mamba" in parts
            and "mamba_allocator" not in HybridReqToTokenPool.alloc.__code__.co_names
        ):
            self.rows.mamba_pool = self.pools["mamba"]
            slots = self.rows.req_index_to_mamba_ping_pong_track_buffer_mapping
            self.rows.req_index_to_mamba_ping_pong_track_buffer_mapping = slots.to(torch.int32)
        kind = self.config["cache"]
        self.hits_tokens = kind != "unified" or len(parts) == 1
        if kind == "hiradix":
            self._open_tiers(params)
        elif kind == "unified":
            self.cache = UnifiedRadixCache(params)
            self.core = Nodes(self.cache)
            if self.config["host"]:
                self._attach(parts)
        else:
            module, name, _ = CACHES[kind]
            self.cache = anywhere(name, module)(params)
        self.core = Nodes(self.cache)

    def _stream(self, *_: Any) -> Streams:
        return self.copies

    def _open_tiers(self, params: Any) -> None:
        """HiRadixCache makes its host pool and its controller itself: these are given to it."""
        module = import_module("sglang.srt.mem_cache.hiradix_cache")
        host = self._host("full", self.config["page"])

        def pool(*_: Any, **__: Any) -> Any:
            return host

        def pool_kind(*_: Any) -> Any:
            return pool

        def controller(*args: Any, **named: Any) -> Any:
            made = OnePool(*args, **named)
            made.pools = {PoolName.KV: (host, self.pools["full"])}
            made.l2_transfer_engine = self.copies
            return made

        vars(module).update(
            MHATokenToKVPoolHost=pool,
            get_mha_host_pool_cls=pool_kind,
            HiCacheController=controller,
            atexit=SimpleNamespace(register=id),
        )
        self.cache = module.HiRadixCache(params, *self._server_args(module.HiRadixCache))
        self.cache.load_back_threshold = self.config["load_from"]

    def _server_args(self, kind: Any) -> Sequence[Any]:
        """Up to 0.5.19 the settings are given, too."""
        return [settings(self.config)] * (kind.__init__.__code__.co_argcount - 2)

    def busy(self) -> bool:
        cache = self.cache
        if not self.config["host"]:
            return False
        return bool(cache.ongoing_write_through or cache.ongoing_load_back)
