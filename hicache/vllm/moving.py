"""The worker's half of the connector: it copies pages between vLLM's tensors, host and storage.

The copies are those of the transfer controller, on the device where the tensors are; storage is
that of the runtime. A message has the orders of one step. Loads begin with it, and what it saves
is read after the step's forward pass. Replies go back as they come. Decides nothing, see
`deciding`, and imports nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hicache import registry
from hicache.core.actions import Backup, Load
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import FlightId
from hicache.devices.base import DeviceOptions
from hicache.memory.lent import (
    Lent,
    LentArena,
    LentSlot,
    LentTensor,
    LentTorchArena,
    lend,
)
from hicache.runtime.controller import COMPUTE, TransferController
from hicache.runtime.driver import TieredExecutor
from hicache.runtime.ranks import offered
from hicache.runtime.storage import Rank, StorageExecutor, StoredPages, WorkerOptions, Workers
from hicache.storage.base import Losses, Storage
from hicache.storage.keys import Context

from .groups import Groups
from .orders import Answer, Message
from .watching import Watching

DEVICES = "hicache.devices"
_DIRECT = DeviceOptions(layout="page_first_direct", io_backend="direct")
_CLOSE_S = 10.0  # that stores under way may take at the end


@dataclass(slots=True)
class Ended:
    """What has ended since the last step. loaded, failed: names of requests; those that failed are
    among both."""

    answer: Answer = field(default_factory=Answer)
    loaded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class Mover:
    """One rank's memory and threads. Close it to end the threads."""

    def __init__(
        self,
        groups: Groups,
        tensors: Mapping[str, Any],
        blocks: int,
        host_pages: Mapping[str, int],
        watching: Watching | None = None,
    ) -> None:
        """tensors: vLLM's, by layer; for a state, several. blocks: of vLLM's pool. watching: of the
        weights with which vLLM fills them; None: they never change.

        Raises CallerError for tensors of another form, and for too little memory."""
        self.lent = lend(
            slots_of(groups, tensors, blocks),
            host_pages,
            sum(len(one.layers) for one in groups.groups),
            shared=groups.shared,
        )
        place = self.lent.slots[0].tensors[0].blocks.device
        self._device = _device(place, self.lent)
        self._compute = self._device.stream(COMPUTE)
        self._storage = StorageExecutor()
        self._executor = TieredExecutor(TransferController(self._device), self._storage)
        self._workers: Workers | None = None
        self._store: Storage | None = None
        self._waiting: dict[FlightId, str] = {}
        self._failed: set[str] = set()
        self._watching = watching
        self._stamps: dict[FlightId, int] = {}  # of copies: `Watching.stamp` when they began
        self._refused: list[FlightId] = []
        self._told = False  # that the weights were changed

    def use_store(
        self,
        store: Storage,
        context: Context,
        rank: Rank,
        now: Callable[[], float],
        notice: Callable[[str], None],
    ) -> None:
        """Use an open store. context: of the keys. now, notice: see `Attachment`."""
        self._store = store
        pools = {name: (buffer,) for name, buffer in self.lent.buffers.items()}
        pages = StoredPages(context, pools, rank)
        options = WorkerOptions(every_boundary=rank.ranks > 1)
        self._workers = Workers(store, pages, now, notice, options)
        self._storage.use(self._workers)

    @property
    def figures(self) -> dict[str, int]:
        """Values that the store did not read or write."""
        lost = Losses() if self._store is None else self._store.losses
        values = lost.reads_failed + lost.reads_missing + lost.reads_corrupt + lost.writes_refused
        return {"store_losses": values}

    def load(self, message: Message) -> None:
        """Begin the loads of a step."""
        self._waiting |= dict(message.waiting)
        self._failed |= set(message.failed)
        if self._watching is not None and message.loads:
            self._watching.look()
        self._begin(message.loads, message)

    def save(self, message: Message) -> None:
        """Begin everything else of a step, after its forward pass."""
        for action in message.storage:
            self._executor.submit(action)
        for flight in message.abandoned:
            self._executor.abandon(flight)
        self._begin(message.backups, message)

    def poll(self) -> Ended:
        """What has ended since the last call."""
        self._executor.start()
        ended = Ended(loaded=set(self._failed), failed=self._failed)
        self._failed = set()
        done = [(flight, 0) for flight in self._refused]
        self._refused.clear()
        replies = self._executor.poll()
        stamp = 0
        if self._watching is not None and any(
            isinstance(one, LoadDone | BackupDone) for one in replies
        ):
            stamp = self._watching.look()
        for reply in replies:
            right = self._stamps.pop(reply.flight, stamp) == stamp
            done.append((reply.flight, offered(reply) if right else 0))
            name = self._waiting.pop(reply.flight, None) if isinstance(reply, LoadDone) else None
            if name is not None:
                ended.loaded.add(name)
                if not reply[1] or not right:
                    ended.failed.add(name)
        outages = 0 if self._store is None else self._store.poll()
        changed = self._watching is not None and self._watching.changed
        ended.answer = Answer(tuple(done), outages, changed and not self._told)
        self._told = changed
        return ended

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
        if watching is not None and (watching.changed or not watching.has(message.adapters)):
            for action in transfers:
                self._refused.append(action.flight)
                if action.flight in self._waiting:
                    self._failed.add(self._waiting.pop(action.flight))
            return
        for action in transfers:
            if watching is not None:
                self._stamps[action.flight] = watching.stamp
            self._executor.submit(action)
        self._device.follow(self._compute)
        self._executor.start()


def slots_of(groups: Groups, tensors: Mapping[str, Any], blocks: int) -> list[LentSlot]:
    """vLLM's tensors as slots. Raises CallerError for a layer that has none, and for tensors whose
    first or second dimension is no multiple of `blocks`."""
    number = {
        layer: at for at, layer in enumerate(one for group in groups.groups for one in group.layers)
    }
    slots = []
    for group in groups.groups:
        for part in range(group.parts):
            found = []
            for layer in group.layers:
                given = tensors.get(layer)
                if given is None:
                    raise CallerError(f"kv_caches: expected a tensor for layer {layer}, found none")
                several = given if isinstance(given, list | tuple) else [given]
                found += [
                    LentTensor(f"{layer}.{place}", number[layer], _by_block(layer, one, blocks))
                    for place, one in enumerate(several)
                ]
            slots.append(LentSlot(group.slot(part), group.component, tuple(found)))
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
    parts = (blocks, tensor.shape[axis] // blocks)
    split = tensor.view(*tensor.shape[:axis], *parts, *tensor.shape[axis + 1 :]).movedim(axis, 0)
    sizes, steps = list(split.shape[1:]), list(split.stride()[1:])
    kept: list[tuple[int, int]] = []
    for size, step in zip(sizes, steps, strict=True):
        if size == 1:
            continue
        if kept and kept[-1][1] == size * step:
            kept[-1] = (kept[-1][0] * size, step)
        else:
            kept.append((size, step))
    shape = (blocks, *(size for size, _ in kept))
    strides = (split.stride(0), *(step for _, step in kept))
    merged = torch.as_strided(split, shape, strides, split.storage_offset())
    return merged.view(torch.uint8)


def _device(place: torch.device, lent: Lent) -> Any:
    """The device where vLLM's tensors are. Raises CallerError if there is none for it."""
    if place.type == "cpu":
        module = registry.load(DEVICES, "cpu")
        return module.CpuDevice.over(LentArena(lent))
    if place.type != "cuda":
        raise CallerError(f"device: expected cpu or cuda, found {place.type}")
    module = registry.load(DEVICES, "cuda")
    runtime = module.Accelerator(place.index or 0)
    return module.CudaDevice.over(LentTorchArena(lent, runtime), runtime, _DIRECT)
