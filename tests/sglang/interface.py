"""SGLang's interface of storage backends as 0.5.23 has it, without SGLang, and host pools for it.

Recorded by hand from mem_cache/hicache_storage.py: names, defaults, and which methods are abstract.
"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

RELEASE = "0.5.23"


@dataclass
class Config:
    """HiCacheStorageConfig."""

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    is_mla_model: bool = False
    enable_storage_metrics: bool = False
    is_page_first_layout: bool = False
    model_name: str | None = "model"
    tp_lcm_size: int | None = None
    should_split_heads: bool = False
    dp_rank: int = 0
    extra_config: dict[str, Any] | None = None
    dcp_size: int = 1
    dcp_rank: int = 0
    logical_page_size: int | None = None


class PoolName(str, Enum):  # noqa: UP042 (as SGLang has it)
    KV = "kv"
    MAMBA = "mamba"
    SWA = "swa"
    INDEXER = "indexer"
    DRAFT = "draft"


class PoolHitPolicy(str, Enum):  # noqa: UP042
    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


@dataclass
class PoolTransfer:
    name: PoolName
    host_indices: Any = None
    device_indices: Any = None
    keys: list[str] | None = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES


@dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict[Any, int]
    restorable_prefix_pages: list[int] | None = None


class HiCacheStorage(ABC):
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self.__dict__.setdefault("registered_pools", {})[host_pool_name] = host_pool

    @abstractmethod
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any: ...

    @abstractmethod
    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> Any: ...

    @abstractmethod
    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool: ...

    @abstractmethod
    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool: ...

    @abstractmethod
    def exists(self, key: str) -> bool: ...


def modules(arguments: Any = None, release: str = RELEASE) -> dict[str, ModuleType]:
    """Modules to put in place of SGLang's. arguments: of the server, as they were resolved; None:
    there are none."""

    def get_server_args() -> Any:
        if arguments is None:
            raise ValueError("Global server args is not set yet!")
        return SimpleNamespace(drawn=id(arguments), resolved_dict=lambda: arguments)

    serving = SimpleNamespace(weight_version="default")
    parts: dict[str, dict[str, Any]] = {
        "sglang": {"__path__": []},
        "sglang.version": {"__version__": release},
        "sglang.srt": {"__path__": []},
        "sglang.srt.runtime_context": {
            "get_server_args": get_server_args,
            "get_serving": lambda: serving,
            "serving": serving,
        },
        "sglang.srt.mem_cache": {"__path__": []},
        "sglang.srt.mem_cache.hicache_storage": {
            "HiCacheStorage": HiCacheStorage,
            "PoolTransferResult": PoolTransferResult,
        },
    }
    made = {}
    for name, content in parts.items():
        made[name] = module = ModuleType(name)
        vars(module).update(content)
        above, _, last = name.rpartition(".")
        if above:
            setattr(made[above], last, module)
    return made


def backend(monkeypatch: Any, arguments: Any = None, release: str = RELEASE) -> ModuleType:
    """`hicache.sglang.backend` over these modules."""
    for name, module in modules(arguments, release).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "hicache.sglang.backend", raising=False)
    module = __import__("hicache.sglang.backend", fromlist=["HicacheStorage"])
    monkeypatch.delitem(sys.modules, "hicache.sglang.backend")
    return module


class MHATokenToKVPoolHost:
    """SGLang's host pool of keys and values, in two of its layouts."""

    start_layer, end_layer, layer_num = 0, 3, 3
    storage_format_tag = shared_allocation_domain = None
    head_num, head_dim = 2, 4

    def __init__(
        self, layout: str, page_size: int = 4, pages: int = 8, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self.layout, self.page_size, self.dtype = layout, page_size, dtype
        slots = pages * page_size
        inner = (self.head_num, self.head_dim)
        shape = (2, 3, slots, *inner) if layout == "layer_first" else (2, slots, 3, *inner)
        count = int(torch.tensor(shape).prod())
        self.kv_buffer = (torch.arange(count) % 251).to(dtype).reshape(shape)

    def get_data_page(self, index: int, flat: bool = True) -> torch.Tensor:
        end = index + self.page_size
        first = self.layout == "layer_first"
        page = self.kv_buffer[:, :, index:end] if first else self.kv_buffer[:, index:end]
        return page.flatten() if flat else page

    def set_from_flat_data_page(self, index: int, data_page: torch.Tensor) -> None:
        page = self.get_data_page(index, flat=False)
        page.copy_(data_page.reshape(page.shape))


# Keys and values that are the same on all ranks: SGLang knows the pool by its class.
MLATokenToKVPoolHost = type(
    "MLATokenToKVPoolHost",
    (),
    {
        name: var
        for name, var in vars(MHATokenToKVPoolHost).items()
        if name not in ("__dict__", "__weakref__")
    },
)


class MambaPoolHost:
    """States: two tensors, whose bytes are put together for a page."""

    page_size, layout, dtype = 1, "layer_first", torch.float32

    def __init__(self, slots: int = 8) -> None:
        self.conv = torch.arange(slots * 6, dtype=torch.bfloat16).reshape(slots, 6)
        self.temporal = torch.arange(slots * 4, dtype=torch.float32).reshape(slots, 4)

    def get_data_page(self, index: int, flat: bool = True) -> torch.Tensor:
        parts = self.conv[index], self.temporal[index]
        return torch.cat([part.contiguous().view(torch.uint8) for part in parts])

    def set_from_flat_data_page(self, index: int, data_page: torch.Tensor) -> None:
        self.conv[index] = data_page[:12].view(torch.bfloat16)
        self.temporal[index] = data_page[12:].clone().view(torch.float32)


class AsymmetricPoolHost(MHATokenToKVPoolHost):
    """A pool that has no flat pages."""

    def get_data_page(self, index: int, flat: bool = True) -> torch.Tensor:
        raise NotImplementedError("no flat pages")
