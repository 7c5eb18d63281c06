"""A store below SGLang's host tier, the threads that work for it, and the scheduler's calls of it.

Real are the factory that loads a backend by its module and class, the attachment, the policies, the
retries, the functions of the threads and the order of their queues. A thread stands still until its
queue is to be worked; what it does then is not interrupted. Doubled is what a network has behind
it: the store, which keeps for each key the contents of one page.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from importlib import import_module
from queue import Queue
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from sglang.srt.managers import cache_controller
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolName, PoolTransferResult
from sglang.srt.mem_cache.unified_cache.storage_attachment import StorageAttachment

from invariants.fuzz.target import Broken, need

MODULE = "hicache_memory_store"
MOST_TRIES, PACE = 3, 2  # of a look-up that found nothing: SGLang's retry options
BATCH = 2  # pages of one call of the store; SGLang's own number is 128
# Each queue of the controller that a thread of its own works, and that thread.
THREADS = {
    "prefetch_queue": "prefetch_thread",
    "prefetch_buffer": "prefetch_io_aux_thread",
    "prefetch_sync_queue": "prefetch_sync_thread",
    "backup_queue": "backup_thread",
}


# -- threads


def stand_still() -> None:
    """The threads of a controller that is made from now on wait for their steps; it is one process
    of one rank, and hashes pages without a compiler."""
    ranks = dict.fromkeys(("tp_rank", "pp_rank", "attn_dcp_rank"), 0)
    sizes = dict.fromkeys(("tp_size", "pp_size", "attn_dcp_size"), 1)
    parallel = SimpleNamespace(**ranks, **sizes)
    cache_controller.Queue = Items
    cache_controller.threading = SimpleNamespace(Thread=Worker, Event=threading.Event)
    cache_controller.STORAGE_BATCH_SIZE = BATCH
    cache_controller.is_dp_attention_enabled = bool
    cache_controller.get_parallel = lambda: parallel
    native_hash: Any = import_module("sglang.srt.mem_cache.cpp_utils.native_hash")
    native_hash._load_native_hash_module = lambda: SimpleNamespace(get_hash=get_hash)


def get_hash(
    raw: Any, count: int, width: int, bigram: bool, prior: bytes | None, page: int | None
) -> Any:
    """SGLang's compiled hashes of pages."""
    tokens = np.asarray(raw, "<u4")
    if bigram:
        tokens = np.stack([tokens[:count], tokens[1 : count + 1]], 1).reshape(-1)
    data, step = tokens[: count * width].tobytes(), 4 * width * (page or max(count, 1))
    hashes = list[str]()
    for at in range(0, len(data), step):
        digest = sha256((prior or b"") + data[at : at + step])
        prior = digest.digest()
        hashes.append(digest.hexdigest())
    return hashes if page else (hashes or [sha256(prior or b"").hexdigest()])[0]


class Waits(BaseException):
    """A thread would wait for its next item: its step ends."""


class Items(Queue):  # type: ignore[type-arg]
    """A queue of the controller. put_by: called with each item that is put."""

    put_by: Callable[[Any], None] | None = None

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        if item is not None:  # None only wakes a thread
            super().put(item)
            if self.put_by is not None:
                self.put_by(item)

    def get(self, *_: Any, **__: Any) -> Any:
        if not Worker.left:
            raise Waits
        Worker.left -= 1
        return super().get(block=False)


class Worker:
    """Stands in for threading.Thread: works one item whenever it is told to."""

    left: ClassVar[int] = -1  # items that the worker at work may still take; below 0: any number

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.target = target

    def start(self) -> None: ...

    def join(self, timeout: float = 0) -> None: ...

    def is_alive(self) -> bool:
        return False

    def step(self) -> None:
        Worker.left = 1
        try:
            self.target()
        except Waits:
            pass
        finally:
            Worker.left = -1


# -- the store


def concrete(kind: Any) -> Any:
    """Lets a class leave out the abstract calls that nobody makes."""
    kind.__abstractmethods__ = frozenset()
    return kind


@concrete
class SimulatedStore(HiCacheStorage):  # type: ignore[misc]
    """The store, as SGLang's interface has it. It answers as HiCacheFile does."""

    storage: ClassVar[Any] = None  # the Storage that it belongs to

    def __init__(self, *_: Any) -> None: ...

    def batch_exists(self, keys: Any, extra_info: Any = None) -> int:
        return int(self.batch_exists_v2(keys).kv_hit_pages)

    def batch_exists_v2(self, keys: Any, pool_transfers: Any = None, extra_info: Any = None) -> Any:
        reach = self.storage.answers(len(keys))
        return self.storage.there(keys[:reach], pool_transfers or ())

    def batch_get_v1(self, keys: Any, host_indices: Any, extra_info: Any = None) -> Any:
        return self.storage.get(PoolName.KV, keys, host_indices)

    def batch_set_v1(self, keys: Any, host_indices: Any, extra_info: Any = None) -> Any:
        return self.storage.set(PoolName.KV, keys, host_indices)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> Any:
        return {x.name: self.storage.get(x.name, x.keys, x.host_indices) for x in transfers}

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> Any:
        return {x.name: self.storage.set(x.name, x.keys, x.host_indices) for x in transfers}


class Storage:
    """What is in the store, and what its threads do. pages: by pool and key, the contents of a
    page. begun: each item of a thread, with its queue. leases: by the number of an operation and
    pool, its host pages. kind, options: of the backend."""

    kind: Any = SimulatedStore
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, world: Any) -> None:
        self.world, self.cache = world, world.cache
        self.pages: dict[Any, Any] = {}
        self.begun = list[Any]()
        self.leases: dict[Any, Any] = {}
        self.working = -1  # number of the operation that a thread works
        self.fault, self.broken = "", list[Broken]()
        SimulatedStore.storage = self

    def answers(self, count: int) -> int:
        """How many of so many pages the store answers for. Raises if it fails."""
        if self.fault == "raise":
            raise ConnectionError("the store does not answer")
        return {"": count, "short": count // 2}.get(self.fault, 0)

    def there(self, keys: Sequence[str], transfers: Sequence[Any]) -> Any:
        """What the store has of a chain of pages: its prefixes that every pool can restore."""
        full = 0
        while full < len(keys) and (PoolName.KV, keys[full]) in self.pages:
            full += 1
        hits, total = {PoolName.KV: full} if full else {}, list(range(1, full + 1))
        for transfer in transfers:
            trailing = transfer.hit_policy == "trailing_pages"
            last = max(1, len(transfer.keys or ())) if trailing else len(keys)
            ends = [
                end
                for end in range(1, full + 1)
                if all((transfer.name, key) in self.pages for key in keys[max(0, end - last) : end])
            ]
            if ends:
                hits[transfer.name] = ends[-1]
            total = [end for end in total if end in ends]
        return PoolTransferResult(total[-1] if total else 0, hits, total)

    def rows(self, name: Any, keys: Any, indices: Any) -> Any:
        """The host pool, and of each key the slots of its page; none if their number differs."""
        host = self.world.sides[name][0]
        if indices is None or indices.numel() != len(keys or ()) * host.page_size:
            return host, []
        return host, list(zip(keys, np.array(indices).reshape(-1, host.page_size), strict=True))

    def get(self, name: Any, keys: Any, indices: Any) -> list[bool]:
        host, rows = self.rows(name, keys, indices)
        reach = self.answers(len(rows))
        hits = [key in keys[:reach] and (name, key) in self.pages for key, _ in rows]
        for (key, slots), hit in zip(rows, hits, strict=True):
            if hit:
                self.judge(self.on_loan, host, slots, "read of the store")
                host.content[slots] = host.promise[slots] = self.pages[name, key]
        return hits or [False] * len(keys or ())

    def set(self, name: Any, keys: Any, indices: Any) -> list[bool]:
        host, rows = self.rows(name, keys, indices)
        reach = self.answers(len(rows))
        for key, slots in rows[:reach]:
            self.judge(self.stored, name, key, host, slots)
        return [at < reach for at in range(len(keys or ()))]

    def judge(self, law: Callable[..., None], *of: Any) -> None:
        """Keeps what is broken: SGLang's threads go on after any error."""
        try:
            law(*of)
        except Broken as broken:
            self.broken.append(broken)

    def stored(self, name: Any, key: str, host: Any, slots: Any) -> None:
        """A page of the host is written to the store."""
        self.pages[name, key] = content = host.content[slots].copy()
        self.on_loan(host, slots, "write to the store")
        text = f"{name}: a page is stored whose contents no backup has brought yet"
        need((content >= 0).all(), "READ-AFTER-ARRIVE", text, f"store {name}")

    def on_loan(self, host: Any, slots: Any, what: str) -> None:
        lease = self.leases.get((self.working, host.name), np.full_like(host.stamp, -1))
        host.judge_lent(lease, slots, what, f"storage {host.name}")

    def begin(self, name: str, item: Any) -> None:
        """A thread has an item; its operation reads or fills its host pages from now on."""
        self.begun.append((name, item))
        operation = getattr(item, "operation", item)
        every = [(PoolName.KV, operation.host_indices)]
        every += [(item.name, item.host_indices) for item in operation.pool_transfers or ()]
        for pool, slots in every:
            if slots is not None and slots.numel():
                host = self.world.sides[pool][0]
                self.leases[operation.id, host.name] = host.lend(np.array(slots))

    def work(self, number: int, fault: str) -> None:
        """The thread of a queue works its items up to this one; the fault is that of the last."""
        name, last = self.begun[number]
        controller = self.cache.cache_controller
        queue = getattr(controller, name).queue
        while any(item is last for item in queue):
            operation = getattr(queue[0], "operation", queue[0])
            self.fault = fault if queue[0] is last else ""
            self.working = operation.id
            getattr(controller, THREADS[name]).step()
            self.fault = ""
        if self.broken:
            raise self.broken.pop(0)

    # -- SGLang's calls

    def attach(self) -> None:
        """As the server's admin call does. The backend is loaded by its module and class."""
        self.cache._storage_attachment = StorageAttachment(self.cache)
        sys.modules[MODULE] = SimpleNamespace(Backend=self.kind)  # type: ignore[assignment]
        options = {
            "backend_name": "store",
            "module_path": MODULE,
            "class_name": "Backend",
            "interface_v1": 1,
            "prefetch_threshold": 1,
            "prefetch_timeout_base": -1,  # has passed when the scheduler looks again
            "prefetch_timeout_per_ki_token": 0,
            **self.options,
        }
        done, text = self.cache.attach_storage_backend(
            "dynamic",
            storage_backend_extra_config_json=json.dumps(options),
            served_model_name="model",
            hicache_storage_prefetch_policy=self.world.config["prefetch"],
        )
        need(done, "CONTRACT", f"the store cannot be attached: {text}")
        for name in THREADS:
            getattr(self.cache.cache_controller, name).put_by = partial(self.begin, name)

    def close(self) -> None:
        """Removes what is on a disk."""


def hit_of(request: Any) -> int:
    return int(request.prefix_len) + int(request.host_hit_length)


def path_end(world: Any, node: Any) -> int:
    """The tokens from the root to the end of a node."""
    path = world.core.collect_path_info([node])[0]
    return int(path[-1].path_end) if path else 0


def ask(world: Any, request: Any, storage_hit_end: Any = None) -> None:
    """Looks a waiting request's prompt up in the store, as _prefetch_kvcache does."""
    cache = world.cache
    request.init_next_round_input(cache, cow_mamba=False)
    node, matched = request.last_host_node, hit_of(request)
    request.storage_prefetch_last_match_len = matched
    if not cache.is_backuped(node) and not cache.is_root(node):
        return
    tokens = request.full_untruncated_fill_ids
    end = request._compute_max_prefix_len(len(tokens))
    handle = request.cache_request_handle
    before = cache.ongoing_prefetch.get(handle)
    cache.prefetch_from_storage(
        handle,
        node,
        tokens[matched:end],
        cache.get_last_hash_value(node),
        None,
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
