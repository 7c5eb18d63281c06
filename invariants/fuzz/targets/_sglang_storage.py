"""A store below SGLang's host tier, and the scheduler's calls of it.

Real are the factory that loads a backend by its module and class, the attachment, the policies, the
retries and what the threads do (see _sglang_threads). Doubled is what a network has behind it: the
store (`Shelf`), which keeps for each key the contents of one page.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    PoolHitPolicy,
    PoolName,
    PoolTransferResult,
)
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.storage_attachment import StorageAttachment
from sglang.srt.mem_cache.utils import get_storage_hash_str

from invariants.fuzz.target import Broken, need
from invariants.fuzz.targets._sglang_threads import THREADS, Items

MODULE = "hicache_shelf"
MOST_TRIES, PACE = 3, 2  # of a look-up that found nothing: SGLang's retry options


class Flat:
    """Stands in for the tensor of a page that was read; the host pool takes it over."""

    def __init__(self, key: str, held: Any) -> None:
        self.key, self.held = key, held

    def __call__(self, host: Any, slots: Any) -> None:
        Shelf.storage.fetched(PoolName.KV, self.key, host, slots, self.held)


class Shelf(HiCacheStorage):  # type: ignore[misc]
    """The store, as SGLang's interface has it. It answers as HiCacheFile does."""

    storage: ClassVar[Any] = None  # the Storage that it belongs to

    def __init__(self, config: Any, *_: Any) -> None:
        self.config, self.hosts = config, dict[Any, Any]()

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.hosts[PoolName.KV] = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        self.hosts[host_pool_name] = host_pool

    def batch_exists(self, keys: Any, extra_info: Any = None) -> int:
        return int(Shelf.storage.told(Shelf.storage.there(keys, ()).kv_hit_pages))

    def batch_exists_v2(self, keys: Any, pool_transfers: Any = None, extra_info: Any = None) -> Any:
        found = Shelf.storage.there(keys, pool_transfers or ())
        if Shelf.storage.told(1) == 1:
            return found
        return PoolTransferResult(0, {})

    def batch_get_v1(self, keys: Any, host_indices: Any, extra_info: Any = None) -> list[bool]:
        return self._read(PoolName.KV, keys, host_indices)

    def batch_set_v1(self, keys: Any, host_indices: Any, extra_info: Any = None) -> list[bool]:
        return self._write(PoolName.KV, keys, host_indices)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> Any:
        return {one.name: self._read(one.name, one.keys, one.host_indices) for one in transfers}

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> Any:
        return {one.name: self._write(one.name, one.keys, one.host_indices) for one in transfers}

    def _pages(self, name: Any, keys: Any, host_indices: Any) -> Any:
        """The slots of each page, or None where their number is not that of the keys."""
        page = self.hosts[name].page_size
        if host_indices is None or host_indices.numel() != len(keys or ()) * page:
            return None
        return np.array(host_indices).reshape(-1, page)

    def _read(self, name: Any, keys: Any, host_indices: Any) -> list[bool]:
        pages, host = self._pages(name, keys, host_indices), self.hosts[name]
        if pages is None:
            return [False] * len(keys or ())
        reach = Shelf.storage.told(len(keys))
        found = []
        for at, (key, slots) in enumerate(zip(keys, pages, strict=True)):
            held = Shelf.storage.pages.get((name, key))
            found.append(at < reach and held is not None)
            if found[-1]:
                Shelf.storage.fetched(name, key, host, slots, held)
        return found

    def _write(self, name: Any, keys: Any, host_indices: Any) -> list[bool]:
        pages, host = self._pages(name, keys, host_indices), self.hosts[name]
        if pages is None:
            return [False] * len(keys or ())
        reach = Shelf.storage.told(len(keys))
        for key, slots in list(zip(keys, pages, strict=True))[:reach]:
            Shelf.storage.stored(name, key, host, slots)
        return [at < reach for at in range(len(keys))]

    # The older calls: a page is copied to and from a flat tensor, which here is its slots.

    def batch_get(self, keys: Any, target_locations: Any = None, target_sizes: Any = None) -> Any:
        reach = Shelf.storage.told(len(keys))
        if not reach and keys:
            return None
        held = [Shelf.storage.pages.get((PoolName.KV, key)) for key in keys]
        return [
            None if one is None or at >= reach else Flat(key, one)
            for at, (key, one) in enumerate(zip(keys, held, strict=True))
        ]

    def batch_set(
        self, keys: Any, values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        reach = Shelf.storage.told(len(keys))
        for key, slots in list(zip(keys, values, strict=True))[:reach]:
            Shelf.storage.stored(PoolName.KV, key, self.hosts[PoolName.KV], slots)
        return bool(reach == len(keys))

    def exists(self, key: str) -> bool:
        return (PoolName.KV, key) in Shelf.storage.pages

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return Shelf.storage.pages.get((PoolName.KV, key))

    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        raise NotImplementedError

    def clear(self) -> None:
        Shelf.storage.pages.clear()


class Storage:
    """What is in the store, and what its threads do. pages: by pool and key, the contents of a
    page. asked: by the number of an operation, the prompt that it looks for. prompts: by the
    content at the end of a page, a prompt that has it and where."""

    def __init__(self, world: Any) -> None:
        self.world, self.cache = world, world.cache
        self.page, self.bigram = world.config["page"], world.config["bigram"]
        self.pages: dict[Any, Any] = {}
        self.asked: dict[int, Any] = {}
        self.prompts: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        self.leases: dict[int, Any] = {}
        self.fault, self.broken = "", list[Broken]()
        self.reading: Any = None  # the prefetch that is being read
        Shelf.storage = self
        core = world.core
        self._insert, self._commit = core.insert_host, core.commit_hicache_transfers
        core.insert_host, core.commit_hicache_transfers = self._inserted, self._committed

    # -- the store

    def told(self, count: int) -> int:
        """How many of so many pages the store answers for. Raises if it fails."""
        if self.fault == "raise":
            raise ConnectionError("the store does not answer")
        return {"": count, "short": count // 2}.get(self.fault, 0)

    def there(self, keys: Sequence[str], transfers: Sequence[Any]) -> Any:
        """What the store has of a chain of pages: its prefixes that every pool can restore."""
        full = 0
        while full < len(keys) and (PoolName.KV, keys[full]) in self.pages:
            full += 1
        hits, whole = {PoolName.KV: full} if full else {}, list(range(1, full + 1))
        for one in transfers:
            trailing = one.hit_policy == PoolHitPolicy.TRAILING_PAGES
            last = max(1, len(one.keys or ())) if trailing else len(keys)
            ends = [
                end
                for end in range(1, full + 1)
                if all((one.name, key) in self.pages for key in keys[max(0, end - last) : end])
            ]
            if ends:
                hits[one.name] = ends[-1]
            whole = [end for end in whole if end in ends]
        return PoolTransferResult(whole[-1] if whole else 0, hits, whole)

    def fetched(self, name: Any, key: str, host: Any, slots: Any, held: Any) -> None:
        """A page is read into the host."""
        self.judge(self._lent, host, slots, "read of the store")
        host.content[slots] = held
        host.changes += 1

    def stored(self, name: Any, key: str, host: Any, slots: Any) -> None:
        """A page of the host is written to the store, under the key of its own prefix."""
        self.judge(self._lent, host, slots, "write to the store")
        held = host.content[slots].copy()
        self.judge(self._named, name, key, held)
        self.pages[name, key] = held

    def judge(self, law: Callable[..., None], *of: Any) -> None:
        """Keeps what is broken: SGLang's threads go on after any error."""
        try:
            law(*of)
        except Broken as broken:
            self.broken.append(broken)

    def _named(self, name: Any, key: str, held: Any) -> None:
        text = f"{name}: a page is stored whose contents no backup has brought yet"
        need((held >= 0).all(), "READ-AFTER-ARRIVE", text, f"store {name}")
        own = self.name_of(int(held[-1]))
        text = f"{name}: a page is stored under the key of another prefix"
        need(own is None or own == key, "BYTES", text, f"store key {name}")

    def _lent(self, host: Any, slots: Any, what: str) -> None:
        pages = slots // host.page_size
        lent = self.reading[host.name] if self.reading and host.name in self.reading else {}
        kept = [lent.get(int(page)) == host.stamp[page] and host.taken[page] for page in pages]
        text = f"{host.name} pages {sorted(set(pages.tolist()))} were freed or reissued"
        need(all(kept), "PIN-IO", f"{text} before the {what} ended", f"storage {host.name}")

    # -- the names of contents

    def learn(self, tokens: Any, space: str, contents: Any) -> None:
        """A prompt has these contents."""
        for end in range(self.page, len(tokens) - self.bigram + 1, self.page):
            self.prompts.setdefault(int(contents[end - 1]), (tokens, space, end))

    def name_of(self, content: int) -> str | None:
        """The key of the page that ends with this content."""
        if content not in self.names and content in self.prompts:
            tokens, space, end = self.prompts[content]
            self.names[content] = self.chain(tokens[: end + self.bigram], space)[-1]
        return self.names.get(content)

    def chain(self, tokens: Any, space: str) -> list[str]:
        """The keys of a prompt's pages, computed from its beginning."""
        key = RadixKey(array("q", tokens), space or None, is_bigram=self.bigram)
        key = key.page_aligned(self.page)
        return list(get_storage_hash_str(key, None, page_size=self.page)) if len(key) else []

    # -- what the host tier takes

    def _inserted(self, node: Any, key: Any, host_value: Any, *rest: Any) -> Any:
        """Pages that were read are cached from now on."""
        found = self._insert(node, key, host_value, *rest)
        if not found.host_insert_dropped:
            pool, slots = self.world.pools["host full"], np.array(host_value)[found.prefix_len :]
            pool.promise[slots] = pool.content[slots]
        return found

    def _committed(self, node: Any, phase: Any, transfers: Any, **named: Any) -> Any:
        result = named.get("pool_storage_result")
        if result is not None:
            for one in [one for each in transfers.values() for one in each]:
                pool = self.world.sides.get(one.name)
                if pool is not None and one.host_indices is not None:
                    slots = np.array(one.host_indices)
                    pool[0].promise[slots] = pool[0].content[slots]
        return self._commit(node, phase, transfers, **named)

    # -- the threads

    @property
    def controller(self) -> Any:
        return self.cache.cache_controller

    def lend(self, operation: Any) -> None:
        """An operation reads or fills these host pages from now on."""
        every = [(PoolName.KV, operation.host_indices)]
        every += [(one.name, one.host_indices) for one in operation.pool_transfers or ()]
        lent: dict[str, dict[int, int]] = {}
        for name, slots in every:
            if slots is not None and slots.numel():
                host = self.world.sides[name][0]
                pages = np.unique(np.array(slots) // host.page_size)
                lent[host.name] = {int(page): int(host.stamp[page]) for page in pages}
        self.leases[operation.id] = lent

    def work(self, name: str, number: int, fault: str) -> None:
        """The thread of a queue works the items up to this one; the fault is that of the last."""
        queue = getattr(self.controller, name, None)
        while isinstance(queue, Items) and queue.queue:
            first = queue.count - len(queue.queue) + 1
            if first > number:
                break
            item = queue.queue[0]
            self.fault = fault if first == number else ""
            operation = getattr(item, "operation", item)
            self.reading = self.leases.get(operation.id)
            ended = getattr(operation, "is_terminated", bool)()
            getattr(self.controller, THREADS[name]).step()
            if name == "prefetch_queue" and not ended and not self.fault:
                self.judge(self._judge_hit, operation)
            self.fault, self.reading = "", None
        if self.broken:
            raise self.broken.pop(0)

    def _judge_hit(self, operation: Any) -> None:
        """A look-up finds what the store has of its prompt."""
        asked = self.asked.pop(operation.id, None)
        if asked is None or getattr(operation, "assume_stored", False):
            return
        tokens, space, start = asked
        first = start // self.page
        keys = self.chain(tokens, space)[first : first + len(operation.token_ids) // self.page]
        there = self.there(keys, operation.pool_transfers or ()).kv_hit_pages * self.page
        found = operation.storage_hit_count
        text = f"a look-up from token {start} on finds {found} tokens, the store has {there}"
        need(found <= there, "MATCH", text, "store longer")
        need(found == there, "MATCH", text, "store shorter")

    # -- SGLang's calls

    def backend(self) -> tuple[type[Any], dict[str, Any]]:
        """The class of the backend, and its own options."""
        return Shelf, {}

    def close(self) -> None:
        """Remove what is on a disk."""

    def attach(self) -> None:
        """As the server's admin call does. The backend is loaded by its module and class."""
        config = self.world.config
        if self.cache._storage_attachment is None:
            self.cache._storage_attachment = StorageAttachment(self.cache)
        kind, more = self.backend()
        module = ModuleType(MODULE)  # a script of these calls is no module that can be imported
        vars(module)[kind.__name__] = kind
        sys.modules[MODULE] = module
        options = {
            "backend_name": "shelf",
            "module_path": MODULE,
            "class_name": kind.__name__,
            "interface_v1": int(config["storage"] in ("zero_copy", "hicache")),
            "prefetch_threshold": config["prefetch_from"],
            "prefetch_timeout_base": -1,  # has passed when the scheduler looks again
            "prefetch_timeout_per_ki_token": 0,
            "hicache_storage_pass_prefix_keys": config["prefix_keys"],
            **more,
        }
        done, said = self.cache.attach_storage_backend(
            "dynamic",
            storage_backend_extra_config_json=json.dumps(options),
            served_model_name="model",
            hicache_storage_prefetch_policy=config["prefetch"],
        )
        need(done, "CONTRACT", f"the store cannot be attached: {said}")
        self.controller.prefetch_buffer.noted = self.controller.backup_queue.noted = self.lend

    def detach(self) -> None:
        done, said = self.cache.detach_storage_backend()
        need(done, "CONTRACT", f"the store cannot be detached: {said}")

    def busy(self) -> bool:
        """Whether the scheduler refuses to reset the cache, or to detach the store."""
        cache = self.cache
        return bool(
            cache.ongoing_write_through
            or cache.ongoing_load_back
            or (cache.enable_storage and (cache.ongoing_prefetch or cache.ongoing_backup))
        )


def hit_of(request: Any) -> int:
    return int(request.prefix_len) + int(request.host_hit_length)


def path_end(world: Any, node: Any) -> int:
    """The tokens from the root to the end of a node."""
    path = world.core.collect_path_info([node])[0]
    return int(path[-1].path_end) if path else 0


def ask(world: Any, request: Any, storage_hit_end: Any = None) -> None:
    """Looks a waiting request's prompt up in the store, as _prefetch_kvcache does."""
    cache = world.cache
    if not cache.enable_storage:
        return
    request.init_next_round_input(cache, cow_mamba=False)
    node, matched = request.last_host_node, hit_of(request)
    request.storage_prefetch_last_match_len = matched
    if not cache.is_backuped(node) and not cache.is_root(node):
        return
    tokens = request.full_untruncated_fill_ids
    end = request._compute_max_prefix_len(len(tokens))
    passes = cache.hicache_storage_pass_prefix_keys
    handle = request.cache_request_handle
    before = cache.ongoing_prefetch.get(handle)
    cache.prefetch_from_storage(
        handle,
        node,
        tokens[matched:end],
        cache.get_last_hash_value(node),
        cache.get_prefix_hash_values(node) if passes else None,
        matched_prefix_tokens=tokens[:matched],
        extra_key=request.extra_key,
        cache_salt=request.cache_salt,
        storage_hit_end=storage_hit_end,
    )
    begun = cache.ongoing_prefetch.get(handle)
    if begun is not None and begun is not before:
        depth = path_end(world, node)
        text = f"a look-up goes on from token {matched}, below a node that ends at {depth}"
        need(depth == matched, "MATCH", text, "store anchor")
        world.storage.asked[begun.operation.id] = list(tokens), request.space, matched


def arrived(world: Any, request: Any) -> int | None:
    """The tokens that the store gave, or None: the request still waits for it."""
    handle = request.cache_request_handle
    if not world.cache.check_prefetch_progress(handle):
        return None
    return int(world.cache.pop_prefetch_loaded_tokens(handle))


def asks_again(world: Any, request: Any) -> bool:
    """After its look-up a waiting request lost a part of what it hit
    (_prefetch_after_device_hit_loss)."""
    before = request.storage_prefetch_last_match_len
    if not before or hit_of(request) >= before:
        return False
    if request.storage_prefetch_retry_attempts >= MOST_TRIES:
        request.storage_prefetch_last_match_len = hit_of(request)
        return False
    request.storage_prefetch_retry_attempts += 1
    ask(world, request)
    return True


def retry(world: Any, waiting: Sequence[Any]) -> None:
    """Look-ups that found nothing, or no room, are made again."""
    retries = world.cache.storage_prefetch_retries
    for request, end in retries.pop_ready(waiting, PACE, MOST_TRIES):
        request.storage_prefetch_retry_attempts += 1
        ask(world, request, end)


def forget(world: Any, request: Any) -> None:
    """A waiting request leaves (_release_aborted_request)."""
    world.cache.release_aborted_request(request.cache_request_handle)
