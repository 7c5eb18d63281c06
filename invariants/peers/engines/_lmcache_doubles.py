"""Test doubles for LMCache: GPU memory, threads that run when they are told to, and a clock.

Everything else is LMCache's own: its engine, storage manager, backends, allocator and policies. One
element of KV is an integer of 64 bits: the content of its position, layer and half (key or value).
Imports nothing of this project, since scripts copy definitions from here.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import tempfile
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import lmcache.v1.cache_engine as engine_module
import lmcache.v1.storage_backend.local_cpu_backend as cpu_module
import lmcache.v1.storage_backend.local_disk_backend as disk_module
import lmcache.v1.storage_backend.storage_manager as manager_module
import numpy as np
import torch
from lmcache.v1.cache_engine import LMCacheEngine, LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector.gpu_connectors import VLLMPagedMemLayerwiseGPUConnector
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.pin_monitor import PinMonitor

LAYERS = 2


class Stuck(RuntimeError):
    """The engine waits for what nobody will do."""


def prefix_contents(tokens: list[int], namespace: str = "") -> np.ndarray:
    """The content of each position: a digest of the whole prefix up to it, with room for the layer
    and the half."""
    digest = blake2b(namespace.encode() + b"\0", digest_size=7)
    found = np.empty(len(tokens), np.int64)
    for at, token in enumerate(tokens):
        digest.update(token.to_bytes(4, "little"))
        found[at] = int.from_bytes(digest.digest(), "little") & ~0xFF
    return found


class Gpu:
    """The KV of one request in GPU memory: by layer, half and position."""

    def __init__(self, tokens: list[int], namespace: str, written: int) -> None:
        contents = prefix_contents(tokens, namespace)
        marks = np.arange(LAYERS)[:, None, None] * 2 + np.arange(2)[None, :, None]
        self.right = contents[None, None, :] + marks
        self.held = np.zeros_like(self.right)
        self.held[:, :, :written] = self.right[:, :, :written]

    def check(self, start: int, end: int) -> None:
        """Raises AssertionError unless these positions hold their own prefix."""
        wrong = self.held[:, :, start:end] != self.right[:, :, start:end]
        if wrong.any():
            layer, half, at = (int(one[0]) for one in np.nonzero(wrong))
            value = int(self.held[layer, half, start + at])
            raise AssertionError(
                f"position {start + at}, layer {layer}, {('key', 'value')[half]}: expected its own "
                f"prefix, found {'nothing' if value == 0 else 'something else'}"
            )


class Connector(VLLMPagedMemLayerwiseGPUConnector):  # type: ignore[misc]
    """Copies between memory objects and a Gpu. kvcaches: the Gpu of the request.

    As LMCache's own (gpu_connectors.py), it copies as many objects as there are.
    """

    def __init__(self, layerwise: bool) -> None:
        self.layerwise = layerwise

    def get_shape(self, num_tokens: int) -> torch.Size:
        return torch.Size([num_tokens, 2, 1])

    def batched_from_gpu(
        self, memory_objs: Any, starts: list[int], ends: list[int], **given: Any
    ) -> Any:
        gpu: Gpu = given["kvcaches"]
        if self.layerwise:
            return self._layers_from_gpu(gpu, memory_objs, starts, ends)
        for one, start, end in zip(memory_objs, starts, ends, strict=False):
            part = gpu.held[:, :, start:end].transpose(1, 0, 2)
            one.tensor.copy_(torch.from_numpy(part.copy()).reshape(one.tensor.shape))
        return None

    def _layers_from_gpu(self, gpu: Gpu, layers: Any, starts: list[int], ends: list[int]) -> Any:
        yield
        for layer, objects in enumerate(layers):
            for one, start, end in zip(objects, starts, ends, strict=False):
                part = torch.from_numpy(gpu.held[layer, :, start:end].T.copy())
                one.tensor.copy_(part.reshape(one.tensor.shape))
            yield

    def batched_to_gpu(self, *given: Any, **named: Any) -> Any:
        gpu: Gpu = named["kvcaches"]
        if self.layerwise:
            return self._layers_to_gpu(gpu, *given)
        memory_objs, starts, ends = given
        for one, start, end in zip(memory_objs, starts, ends, strict=False):
            held = one.tensor.reshape(2, LAYERS, end - start).numpy()
            gpu.held[:, :, start:end] = held.transpose(1, 0, 2)
        return None

    def _layers_to_gpu(self, gpu: Gpu, starts: list[int], ends: list[int]) -> Any:
        for layer in range(LAYERS):
            objects = yield
            for one, start, end in zip(objects, starts, ends, strict=False):
                gpu.held[layer, :, start:end] = one.tensor.reshape(end - start, 2).numpy().T
        yield
        yield


class Job:
    """Work that a thread of the engine would do. It is done when somebody says so."""

    def __init__(self, function: Any, given: Any, named: Any, done: Any) -> None:
        self.priority = named.pop("priority", 0)
        self.function, self.given, self.named, self.done = function, given, named, done


class Threads:
    """Stands in for the threads of the disk: jobs wait until they are run."""

    def __init__(self, loop: Any, max_workers: int = 1) -> None:
        self.loop = loop
        self.jobs: list[Job] = []
        self.begun = 0

    async def submit_job(self, function: Any, *given: Any, **named: Any) -> Any:
        job = Job(function, given, named, self.loop.create_future())
        self.jobs.append(job)
        self.begun += 1
        return await job.done

    def run(self, job: Job, fault: str = "") -> None:
        """Does a job. fault: "fail" if the disk is full."""
        self.jobs.remove(job)
        if fault:
            disk_module.open = _full
        try:
            result = job.function(*job.given, **job.named)
        except Exception as error:
            job.done.set_exception(error)
        else:
            job.done.set_result(result)
        finally:
            vars(disk_module).pop("open", None)
        turn(self.loop)

    def run_first(self) -> None:
        self.run(min(self.jobs, key=lambda job: job.priority))

    def run_at(self, at: int, fault: str = "") -> None:
        """Does the job at this place in the queue."""
        self.run(self.jobs[at], fault)

    def shutdown(self, wait: bool = True) -> None:
        while self.jobs:
            self.run_first()


def _full(*given: Any, **named: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def turn(loop: Any) -> None:
    """Lets the engine's loop do all that it can do now. Whoever calls this is its thread. Raises
    Stuck if that waits for ever."""
    while loop._ready and not loop.is_running():
        loop.call_soon(loop.stop)
        loop.run_forever()
    if STUCK:
        raise STUCK[0]


class Task:
    """A coroutine on the engine's loop, as another thread sees it."""

    def __init__(self, coroutine: Any, loop: Any) -> None:
        self.loop = loop
        self.task = loop.create_task(coroutine)
        turn(loop)

    def result(self, timeout: Any = None) -> Any:
        """Somebody waits for it: what it needs is done now."""
        while not self.task.done():
            RIGS[-1].threads.run_first()
        return self.task.result()


class InTurn:
    """Stands in for a pool of threads that somebody waits for."""

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def map(self, function: Any, *given: Any) -> Any:
        return map(function, *given)

    def shutdown(self, wait: bool = True) -> None:
        pass


class Lock:
    """Stands in for a lock, where there is one thread: who finds it taken waits for ever."""

    def __init__(self) -> None:
        self.taken = False

    def acquire(self) -> bool:
        if self.taken:
            STUCK.append(Stuck("waits for a lock that nobody will release"))
            raise STUCK[-1]
        self.taken = True
        return True

    def release(self) -> None:
        self.taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Clock:
    """Stands in for the time: who waits for memory lets another thread go on."""

    @staticmethod
    def time() -> float:
        return 0.0

    @staticmethod
    def sleep(seconds: float) -> None:
        threads = RIGS[-1].threads if RIGS else None
        if threads is None or not threads.jobs:
            raise Stuck("waits for memory, and nothing is under way that could free some")
        threads.run_first()


RIGS: list[Rig] = []  # the one that is open
STUCK: list[Stuck] = []  # what waits for ever in it


class _Asyncio:
    """The module asyncio, without a loop in a thread."""

    run_coroutine_threadsafe = staticmethod(Task)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def use_doubles() -> None:
    """Puts the doubles in the place of threads, time and the timeouts of pins. Memory objects free
    themselves when they are collected, so collecting waits for the end of an engine."""
    if gc.isenabled():
        gc.collect()
        gc.freeze()
        gc.disable()
    logging.disable(logging.CRITICAL)
    engine_module.InitializeUsageContext = _none
    engine_module.gc = SimpleNamespace(collect=int, disable=int)
    cpu_module.time = Clock
    engine_module.asyncio = disk_module.asyncio = manager_module.asyncio = _Asyncio()
    disk_module.AsyncPQThreadPoolExecutor = Threads
    disk_module.ThreadPoolExecutor = InTurn
    manager_module.start_loop_in_thread_with_exceptions = lambda loop: None
    PinMonitor.start_monitoring = lambda self: None


class Rig:
    """An engine of LMCache with its local backends.

    chunk: tokens of a chunk. cpu, disk: units of `align` bytes that each holds; without a disk, 0.
    policy: of eviction. hot: whether the CPU keeps what is stored. unfull: whether the last chunk
    is stored if it is not full. layerwise: whether each layer is stored by itself. ahead: whether a
    look-up begins to load (`enable_async_loading`).
    """

    def __init__(
        self,
        *,
        chunk: int,
        cpu: int,
        disk: int = 0,
        policy: str = "LRU",
        hot: bool = True,
        unfull: bool = False,
        layerwise: bool = False,
        ahead: bool = False,
        align: int = 4096,
    ) -> None:
        use_doubles()
        self.align, self.layerwise = align, layerwise
        self.folder = tempfile.TemporaryDirectory(prefix="lmcache-")
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=chunk,
            local_cpu=hot,
            max_local_cpu_size=cpu * align / 1024**3,
            local_disk=f"file://{self.folder.name}/" if disk else None,
            max_local_disk_size=disk * align / 1024**3,
            cache_policy=policy,
            save_unfull_chunk=unfull,
            use_layerwise=layerwise,
            enable_async_loading=ahead,
            extra_config={"local_cpu.pinned_align_bytes": align},
        )
        metadata = LMCacheMetadata(
            model_name="model",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.int64,
            kv_shape=(LAYERS, 2, chunk, 1, 1),
            role="worker",
            chunk_size=chunk,
        )
        database = LMCacheEngineBuilder._Create_token_database(config, metadata)
        connector = Connector(layerwise)
        self.engine = LMCacheEngine(config, metadata, database, connector, _none, _none)
        self.answers: dict[str, int] = {}  # of look-ups that load ahead
        self.engine.post_init(async_lookup_server=self)
        backends = self.engine.storage_manager.storage_backends
        self.cpu = backends["LocalCPUBackend"]
        self.disk = backends.get("LocalDiskBackend")
        self.loop = self.engine.storage_manager.loop
        self.loop.set_exception_handler(lambda loop, context: None)
        self.threads = self.disk.disk_worker.executor if self.disk else Threads(self.loop)
        self.cpu.cpu_lock = Lock()
        self.cpu.memory_allocator.host_mem_lock = Lock()
        self.cpu.memory_allocator.pin_allocator.address_manager._lock = Lock()
        if self.disk:
            self.disk.disk_lock = Lock()
        RIGS[:] = [self]
        STUCK.clear()

    def store(self, gpu: Gpu, tokens: list[int], skip: int, configs: Any) -> None:
        """As vLLM's connector stores. skip: leading tokens that are stored, in whole chunks."""
        mask = torch.ones(len(tokens), dtype=torch.bool)
        mask[:skip] = False
        named = {"kvcaches": gpu, "request_configs": configs, "slot_mapping": mask}
        if self.layerwise:
            for _ in self.engine.store_layer(tokens, mask=mask, sync=True, **named):
                pass
        else:
            self.engine.store(tokens, mask=mask, **named)

    def send_response_to_scheduler(self, lookup_id: str, tokens: int) -> None:
        """The engine answers a look-up that loads ahead."""
        self.answers[lookup_id] = tokens

    def look_ahead(self, tokens: list[int], request: str, configs: Any) -> None:
        """As vLLM's connector looks up where the engine loads ahead."""
        self.engine.async_lookup_and_prefetch(
            request, tokens=tokens, pin=True, request_configs=configs
        )

    def retrieve(self, gpu: Gpu, tokens: list[int], skip: int, request: str, configs: Any) -> int:
        """As vLLM's connector loads what a look-up found, and ends the step. skip: leading tokens,
        in whole chunks, that the GPU has. Returns how many tokens came."""
        mask = torch.ones(len(tokens), dtype=torch.bool)
        mask[:skip] = False
        named = {"kvcaches": gpu, "request_configs": configs, "slot_mapping": mask}
        if not self.layerwise:
            found = self.engine.retrieve(tokens, mask, req_id=request, **named)
        else:
            found = None
            for one in self.engine.retrieve_layer(tokens, mask, sync=True, **named):
                found = one
        self.engine.lookup_unpin(request)
        return 0 if found is None else int(found.sum())

    def close(self) -> None:
        self.threads.jobs.clear()
        RIGS.clear()
        self.loop.close()
        self.cpu.memory_allocator.close()
        self.folder.cleanup()
        gc.collect()


def _none(*given: Any) -> None:
    return None
