"""`HicacheStorage`: SGLang's interface of a storage backend, over pools in a verified store.

SGLang makes one in each process of its scheduler, then registers the host pools, and asks it from
the threads of its prefetches and backups. This file turns SGLang's types into ours; nothing here
decides what is stored or fetched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from sglang.srt import runtime_context
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult
from sglang.version import __version__ as release

from hicache.clock import Clock
from hicache.core.errors import CallerError
from hicache.storage.changes import after, caller
from hicache.storage.identity import code_of_modules
from hicache.storage.keys import shard

from .describing import form_of, settings_of, weights_of
from .storing import HostPages, prefixes

KNOWN = ("0.5.22", "0.5.23")
_KV = "kv"
_MARK = "_hicache_server"
_WRITES = ("load_weights", "update_weights", "begin_weight_update")  # beginnings of names
_log = logging.getLogger("sglang.hicache")  # SGLang shows what is logged under its own name


class HicacheStorage(HiCacheStorage):
    """Raises CallerError, one line, for settings, releases and pools that it cannot carry."""

    def __init__(self, storage_config: Any, options: Any = None) -> None:
        """storage_config: SGLang's `HiCacheStorageConfig`. options: of the factory, none known."""
        settings = settings_of(storage_config.extra_config or {})
        _check(storage_config)
        self._config = storage_config
        self._version = _weight_version()
        self._server = _watched(settings.weights)
        args = _server_arguments()
        weights = weights_of(args, settings.weights, self._server.adapters)
        self._updates = self._server.updates
        weights |= {"weight_version": self._version, "modules": self._server.modules}
        self._weights, self._stopped, self._closed = weights, False, False
        self._model = self._config.model_name or str(getattr(args, "model_path", "") or "")
        self.store = settings.open(Clock().now_s, _log.warning)
        self.pools: dict[str, HostPages] = {}

    # -- host pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(_KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(_text(host_pool_name), host_pool)

    def _register(self, name: str, pool: Any) -> None:
        config = self._config
        try:
            pages = HostPages(name, pool)
        except CallerError:
            self.close()
            raise
        at = (config.tp_rank, config.tp_size, config.pp_rank, config.pp_size)
        shared = config.is_mla_model and not pages.per_rank  # all ranks of a stage have the same
        context = form_of(self._model, self._weights, pages.form, config.tp_size)
        pages.use(self.store, context, shard(*at, shared=shared), describes=config.tp_rank == 0)
        self.pools[name] = pages

    # -- what is there

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        there = self.pools[_KV].there(keys) if self._usable() else [False]
        return there.index(False) if False in there else len(there)

    def batch_exists_v2(
        self, keys: Sequence[str], pool_transfers: Any = None, extra_info: Any = None
    ) -> Any:
        full = self.batch_exists(keys)
        pools = {
            pool_transfer.name: self._wanted(pool_transfer, keys[:full])
            for pool_transfer in pool_transfers or ()
        }
        every, longest = prefixes(full, pools)
        longest = ({_KV: full} if full else {}) | longest
        return PoolTransferResult(every[-1] if every else 0, longest, every)

    def _wanted(self, transfer: Any, keys: Sequence[str]) -> tuple[int, list[bool]]:
        """How many of its last pages a pool needs, 0 for all, and which are there; none with a
        policy that is not known."""
        pages, policy = self.pools.get(_text(transfer.name)), _text(transfer.hit_policy)
        if pages is None or policy not in ("all_pages", "trailing_pages"):
            return 0, []
        last = max(1, len(transfer.keys or ())) if policy == "trailing_pages" else 0
        return last, pages.there(keys)

    # -- pages in host pools

    def batch_get_v1(
        self, keys: Sequence[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        return self._get(_KV, keys, host_indices)

    def batch_set_v1(
        self, keys: Sequence[str], host_indices: Any, extra_info: Any = None
    ) -> list[bool]:
        return self._set(_KV, keys, host_indices)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        return _each(self._get, transfers)

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        return _each(self._set, transfers)

    def _get(self, name: str, keys: Sequence[str], slots: Any) -> list[bool]:
        pages = self.pools.get(name) if self._usable() else None
        return pages.read(keys, slots) if pages else [False] * len(keys)

    def _set(self, name: str, keys: Sequence[str], slots: Any) -> list[bool]:
        pages = self.pools.get(name) if self._usable() else None
        return pages.write(keys, slots) if pages else [False] * len(keys)

    # -- without interface_v1, which the settings ask for

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return None

    def batch_get(self, keys: Any, target_locations: Any = None, target_sizes: Any = None) -> Any:
        return [None] * len(keys)

    def set(self, key: str, *args: Any, **kwargs: Any) -> bool:
        return False

    def batch_set(self, keys: Any, *args: Any, **kwargs: Any) -> bool:
        return False

    # -- the store

    def _usable(self) -> bool:
        """Whether pages may be asked for: the weights are those of the keys."""
        now = _weight_version(), self._server.updates
        if not self._stopped and now != (self._version, self._updates):
            self._stopped = True
            _log.warning(
                "hicache: the weights were updated, so storage is not used until it is attached "
                'again with a name for them ("weights")'
            )
        return not self._stopped

    def clear(self) -> None:
        """Raises OSError if the store cannot be asked; SGLang then says that it was not cleared."""
        for pages in self.pools.values():
            pages.clear()

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            self.store.close()


class _Server:
    """What is known of the server of this process. updates: of its weights. modules: digests of the
    code of its model that is not SGLang's. adapters: those that it was started with, by path."""

    def __init__(self, runner: Any = None) -> None:
        self.updates = 0
        self.adapters: dict[str, str] = {}
        self.modules = [] if runner is None else code_of_modules([runner.model], "sglang")
        if runner is None:
            return
        owners = [type(runner), type(getattr(runner, "weight_updater", runner)), runner.model]
        for owner in dict.fromkeys(owners):
            for name in dir(owner):
                if name.startswith(_WRITES):
                    after(owner, name, self._updated)
        saver = getattr(runner, "memory_saver_adapter", None)
        copied = getattr(_server_arguments(), "enable_weights_cpu_backup", False)
        if getattr(saver, "enabled", False) and not copied:
            after(type(saver), "pause", self._released)

    def _updated(self, *_: Any, **__: Any) -> None:
        self.updates += 1

    def _released(self, _: Any, tag: str) -> None:
        """Memory was released without a copy; whose, the tag says."""
        self.updates += tag == "weights"


def _watched(named: str) -> _Server:
    """The server that makes this backend; each of its updates is counted from then on. Without one,
    as in tests, the version of the weights alone says that they are others.

    Raises CallerError if nothing says what its weights are now."""
    scheduler = caller(lambda item: hasattr(item, "tp_worker"))
    if scheduler is None:
        return _Server()
    runner = scheduler.tp_worker.model_runner
    server: _Server | None = getattr(runner, _MARK, None)
    begins = caller(lambda item: item is scheduler, "__init__") is not None
    if not named and (not begins if server is None else server.updates):
        raise CallerError(
            "weights: expected a name for them where storage is attached to a running server; "
            'set "weights", another for each update'
        )
    if server is None:
        server = _Server(runner)
        setattr(runner, _MARK, server)
    return server


def _check(config: Any) -> None:
    """Raises CallerError for releases and settings of SGLang that are unknown here."""
    if release not in KNOWN:
        raise CallerError(
            f"sglang: expected a release of {', '.join(KNOWN)}, found {release}; install one, or "
            "another hicache"
        )
    for name in ("attn_cp_size", "dcp_size", "tp_lcm_size"):
        if (getattr(config, name) or 1) != 1:
            raise CallerError(
                f"{name}: expected none with hicache, found {getattr(config, name)}; leave it out, "
                "or use another storage backend"
            )


def _server_arguments() -> Any:
    """SGLang's arguments as it has resolved them; None if there are none."""
    try:
        return SimpleNamespace(**runtime_context.get_server_args().resolved_dict())
    except ValueError:
        return None


def _weight_version() -> str:
    """What SGLang calls the weights that it has now; an update of weights may change it."""
    try:
        return str(getattr(runtime_context.get_serving(), "weight_version", ""))
    except (KeyError, ValueError):  # there are no arguments
        return ""


def _each(call: Callable[..., list[bool]], transfers: Any) -> dict[Any, list[bool]]:
    """The results of a call for each of SGLang's `PoolTransfer`s, by its name."""
    return {
        item.name: call(_text(item.name), item.keys or (), item.host_indices) for item in transfers
    }


def _text(name: Any) -> str:
    return str(getattr(name, "value", name))
