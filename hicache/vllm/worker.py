"""The worker side of the connector: it copies pages between vLLM's tensors, host and storage,
and knows with which weights and adapters vLLM fills them.

The copies are those of the transfer controller, on the device where the tensors are; storage is
that of the runtime. A message has the orders of one step. Loads begin with it, and what it saves
is read after the step's forward pass. Replies go back as they come.

Updates are noticed where vLLM's worker and model write weights, and by samples of the parameters
where somebody else does. An adapter is what its files were when vLLM has loaded it. Reads vLLM's
worker by its attributes and imports nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from os import scandir
from typing import Any

import torch

from hicache import registry
from hicache.core.actions import Backup, Load
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import TransferId
from hicache.devices.base import DeviceOptions
from hicache.memory.external import (
    External,
    ExternalArena,
    ExternalSlot,
    ExternalTensor,
    ExternalTorchArena,
    lend,
)
from hicache.runtime.controller import COMPUTE, TransferController
from hicache.runtime.driver import TieredExecutor
from hicache.runtime.ranks import offered
from hicache.runtime.storage import Rank, StorageExecutor, StoredPages, WorkerOptions, Workers
from hicache.storage.base import Storage
from hicache.storage.changes import Samples, after
from hicache.storage.identity import digest_of_adapter
from hicache.storage.keys import Context

from .groups import Groups
from .orders import Adapter, Answer, Message

_DIRECT = DeviceOptions(layout="page_first_direct", io_backend="direct")
_WRITES = (
    *("load_model", "reload_weights", "start_weight_update", "start_draft_weight_update"),
    *("update_weights", "finish_weight_update", "load_weights"),
)


class Watching:
    """worker: vLLM's. changed: that its weights are others than at the start. stamp: counts
    everything that has changed. models: of the worker, a draft among them."""

    def __init__(self, worker: Any) -> None:
        self.stamp, self.changed = 0, False
        self._asleep = False  # the weights are in no memory that can be read
        self._adapters: dict[int, str] = {}
        runner = worker.model_runner
        models = [runner.get_model(), getattr(runner, "get_draft_model", lambda: None)()]
        self.models = [model for model in models if hasattr(model, "modules")]
        for owner in (worker, runner, *self.models):
            for name in _WRITES:
                after(owner, name, self._updated)
        after(worker, "sleep", self._slept)
        after(worker, "wake_up", self._woke)
        self._manager = getattr(runner, "lora_manager", None)
        if self._manager is not None:
            self._load, self._manager._load_adapter = self._manager._load_adapter, self._loading
        self._samples = Samples(self.models)

    def look(self) -> int:
        """The stamp, after a look at the parameters."""
        if not self._asleep and not self.changed and not self._samples.same():
            self._updated()
        return self.stamp

    def has(self, adapters: Sequence[Adapter]) -> bool:
        """Whether these are what the worker has loaded, or what it would load from their files."""
        manager = self._manager
        for adapter in adapters:
            if manager is None or adapter.number not in manager.list_adapters():
                self._note(adapter.number, adapter.path)
            if self._adapters.get(adapter.number) != adapter.digest:
                return False
        return True

    def _loading(self, request: Any) -> Any:
        """In place of vLLM's function. Files that are written meanwhile are nobody's."""
        before = digest_of(request.lora_path, lambda text: None)
        try:
            return self._load(request)
        finally:
            self._note(request.lora_int_id, request.lora_path, before)

    def _note(self, number: int, path: str, before: str | None = None) -> None:
        digest = digest_of(path, lambda text: None)
        if before not in (None, digest):
            digest = ""
        self.stamp += self._adapters.get(number, digest) != digest
        self._adapters[number] = digest

    def _updated(self, *_: Any, **__: Any) -> None:
        self.stamp += 1
        self.changed = True

    def _slept(self, level: int = 1) -> None:
        self._asleep |= level > 0
        if level > 1:
            self._updated()

    def _woke(self, tags: Sequence[str] | None = None) -> None:
        self._asleep &= tags is not None and "weights" not in tags


def digest_of(path: str, notice: Callable[[str], None]) -> str:
    """What an adapter is called in keys; empty, and a notice, if its files cannot be read."""
    try:
        return digest_of_adapter(path)
    except CallerError as error:
        notice(f"hicache: {error}; its requests are not cached")
        return ""


class Adapters:
    """What the files of adapters are, read again when they have changed."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._digest = lru_cache(1024)(lambda path, stamp: digest_of(path, notice))

    def digest(self, adapter: Any) -> str:
        """Empty if the files are not there: then nothing is kept of requests with it."""
        path = adapter.lora_path
        try:
            files = [(item.name, item.stat()) for item in scandir(path)]
        except OSError:
            files = []
        # another stamp when a file was written, also if its time was set back
        stamp = sorted((name, item.st_ino, item.st_size, item.st_ctime_ns) for name, item in files)
        return self._digest(path, tuple(stamp))


class ConnectorWorker:
    """One rank's memory and threads. Close it to end the threads."""

    def __init__(
        self,
        groups: Groups,
        tensors: Mapping[str, Any],
        blocks: int,
        host_pages: Mapping[str, int],
        watching: Any,
    ) -> None:
        """tensors: vLLM's, by layer; for a state, several. blocks: of vLLM's pool. watching: a
        `Watching` of the weights with which vLLM fills them.

        Raises CallerError for tensors of another form, and for too little memory."""
        slots = slots_of(groups, tensors, blocks)
        layers = sum(len(group.layers) for group in groups.groups)
        self.external = lend(slots, host_pages, layers, shared=groups.shared)
        self._device = _device(self.external.slots[0].tensors[0].blocks.device, self.external)
        self._compute = self._device.stream(COMPUTE)
        self._storage = StorageExecutor()
        self._executor = TieredExecutor(TransferController(self._device), self._storage)
        self._workers: Workers | None = None
        self._store: Storage | None = None
        self._waiting: dict[TransferId, str] = {}
        self._failed: set[str] = set()
        self._watching = watching
        self._stamps: dict[TransferId, int] = {}  # of copies: `Watching.stamp` when they began
        self._refused: list[TransferId] = []
        self._reported = False  # that the weights were changed

    def use_store(
        self, store: Storage, context: Context, rank: Rank, now: Callable[[], float]
    ) -> None:
        """Use an open store. context: of the keys. now: see `Attachment`."""
        self._store = store
        pools = {name: (buffer,) for name, buffer in self.external.buffers.items()}
        pages = StoredPages(context, pools, rank)
        options = WorkerOptions(every_boundary=rank.ranks > 1)
        self._workers = Workers(store, pages, now, options)
        self._storage.use(self._workers)

    @property
    def figures(self) -> dict[str, int]:
        """Values that the store did not read or write."""
        if self._store is None:
            return {}
        lost = self._store.losses
        values = lost.reads_failed + lost.reads_missing + lost.reads_corrupt + lost.writes_refused
        return {"store_losses": values}

    def load(self, message: Message) -> None:
        """Begin the loads of a step."""
        self._waiting |= message.waiting
        self._failed |= message.failed
        if message.loads:
            self._watching.look()
        self._begin(message.loads, message)

    def save(self, message: Message) -> None:
        """Begin everything else of a step, after its forward pass."""
        for action in message.storage:
            self._executor.submit(action)
        for transfer in message.abandoned:
            self._executor.abandon(transfer)
        self._begin(message.backups, message)

    def poll(self) -> tuple[Answer, set[str]]:
        """What has ended since the last call, and the requests whose loads have."""
        self._executor.start()
        failed, self._failed = self._failed, set()
        loaded, done = set(failed), [(transfer, 0) for transfer in self._refused]
        self._refused.clear()
        replies = self._executor.poll()
        copies = any(isinstance(reply, LoadDone | BackupDone) for reply in replies)
        stamp = self._watching.look() if copies else 0
        for reply in replies:
            right = self._stamps.pop(reply.transfer, stamp) == stamp
            done.append((reply.transfer, offered(reply) if right else 0))
            name = self._waiting.pop(reply.transfer, None) if isinstance(reply, LoadDone) else None
            if name is not None:
                loaded.add(name)
                if not reply[1] or not right:
                    failed.add(name)
        outages = 0 if self._store is None else self._store.poll()
        changed = self._watching.changed and not self._reported
        self._reported |= changed
        return Answer(tuple(done), outages, changed, frozenset(failed)), loaded

    def close(self) -> None:
        """Wait for what was begun, then end all threads and close the store."""
        self._device.close()
        if self._workers is not None and self._store is not None:
            self._workers.close()
            self._store.close()

    def _begin(self, transfers: Sequence[Load | Backup], message: Message) -> None:
        """Begin copies, or refuse them all: they are for other weights than vLLM has now."""
        if not transfers:
            self._executor.start()
            return
        watching = self._watching
        if watching.changed or not watching.has(sorted(message.adapters)):
            for action in transfers:
                self._refused.append(action.transfer)
                if action.transfer in self._waiting:
                    self._failed.add(self._waiting.pop(action.transfer))
            return
        for action in transfers:
            self._stamps[action.transfer] = watching.stamp
            self._executor.submit(action)
        self._device.follow(self._compute)
        self._executor.start()


def slots_of(groups: Groups, tensors: Mapping[str, Any], blocks: int) -> list[ExternalSlot]:
    """vLLM's tensors as slots. Raises CallerError for a layer that has none, and for tensors whose
    first or second dimension is no multiple of `blocks`."""
    layers = [layer for group in groups.groups for layer in group.layers]
    number = {layer: at for at, layer in enumerate(layers)}
    slots = []
    for group in groups.groups:
        for part in range(group.parts):
            result = []
            for layer in group.layers:
                tensor = tensors.get(layer)
                if tensor is None:
                    raise CallerError(f"kv_caches: expected a tensor for layer {layer}, found none")
                several = tensor if isinstance(tensor, list | tuple) else [tensor]
                result += [
                    ExternalTensor(
                        f"{layer}.{place}", number[layer], _by_block(layer, item, blocks)
                    )
                    for place, item in enumerate(several)
                ]
            slots.append(ExternalSlot(group.slot(part), group.component, tuple(result)))
    return slots


def block_axis(tensor: Any, blocks: int) -> int:
    """The dimension of a tensor that counts the blocks, or parts of blocks; -1 if there is none."""
    return next((at for at in (0, 1) if tensor.dim() > at and not tensor.shape[at] % blocks), -1)


def _by_block(layer: str, tensor: torch.Tensor, blocks: int) -> torch.Tensor:
    """uint8[block, ...] of a tensor whose first or second dimension counts the blocks, or parts of
    blocks; dimensions that are contiguous in a block are put together."""
    axis = block_axis(tensor, blocks)
    if axis < 0:
        raise CallerError(
            f"kv_caches: expected a dimension of {blocks} blocks in the tensor of {layer}, found "
            f"{tuple(tensor.shape)}"
        )
    split = tensor.unflatten(axis, (blocks, -1)).movedim(axis, 0)  # type: ignore[no-untyped-call]
    kept: list[tuple[int, int]] = []
    for size, step in zip(split.shape[1:], split.stride()[1:], strict=True):
        if kept and kept[-1][1] == size * step:
            kept[-1] = (kept[-1][0] * size, step)
        elif size > 1:
            kept.append((size, step))
    shape = (blocks, *(size for size, _ in kept))
    strides = (split.stride(0), *(step for _, step in kept))
    merged = torch.as_strided(split, shape, strides, split.storage_offset())
    return merged.view(torch.uint8)


def _device(place: torch.device, external: External) -> Any:
    """The device where vLLM's tensors are. Raises CallerError if there is none for it."""
    if place.type not in ("cpu", "cuda"):
        raise CallerError(f"device: expected cpu or cuda, found {place.type}")
    module = registry.load("hicache.devices", place.type)
    if place.type == "cpu":
        return module.CpuDevice.over(ExternalArena(external))
    runtime = module.Accelerator(place.index or 0)
    return module.CudaDevice.over(ExternalTorchArena(external, runtime), runtime, _DIRECT)
