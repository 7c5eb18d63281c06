"""Pools on a device whose memory another engine owns, and host memory for their pages.

    device   a view of each of the engine's tensors: uint8[block, ...]. Pages are its blocks
    host     one buffer for each component. A page is contiguous, one tensor's block after another

Several blocks of an engine may make up one page on host, as where the groups of a hybrid model have
blocks of different sizes. Each of them is a *slot*, a component of the arena of its own: blocks of
the engine on device, pages of the buffer on host. So a copy of one page is a copy in each slot.

It does not find the tensors of an engine, see `hicache/vllm`, and does not copy or allocate device
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.models.base import ModelDescription, PoolDescription

from .host import Registrar, Registration, allocate, cut, room, try_all
from .layouts import Bytes, Sizes
from .pools import DEVICE_LAYOUT, Arena, Pool, PoolPlan, PoolTable
from .torch_arena import TorchArena

HOST_LAYOUT = "page_first_direct"
_UNKNOWN = (
    *("hidden_size", "vocabulary", "attention_heads", "score_elements", "value_elements"),
    *("decode_score_elements", "decode_value_elements", "parameters", "active_parameters"),
    *("experts", "experts_per_token", "embeddings", "weight_bytes", "expert_bytes"),
)
_DIMENSIONS = 5  # of the view of a tensor: block, and the part, token, head and bytes of a pool


class LentTensor(NamedTuple):
    """One tensor of an engine. layer: of the model. blocks: uint8[block, ...], up to four more
    dimensions, the last of them contiguous."""

    name: str
    layer: int
    blocks: torch.Tensor


class LentSlot(NamedTuple):
    """Blocks that are copied together. host: the component whose buffer has their pages, in which
    the tensors follow those of the slots before."""

    name: str
    host: str
    tensors: tuple[LentTensor, ...]

    @property
    def block_bytes(self) -> int:
        return sum(one.blocks[0].numel() for one in self.tensors)


class HostBuffer:
    """The host pages of one component, and how a store sees them (`PagePool`). shared: every rank
    has the same bytes."""

    def __init__(
        self, name: str, pages: int, page_bytes: int, node: int | None, shared: bool
    ) -> None:
        """Raises CallerError if there is too little memory."""
        self.name, self.pages, self.page_bytes = name, pages, page_bytes
        self.shared = shared
        self.bytes: Bytes = allocate(f"host pages of {name}", pages * page_bytes, node)
        self.flat = self.bytes.data

    def buffers(self, page: int) -> tuple[memoryview, ...]:
        """The memory of a page."""
        return (self.flat[page * self.page_bytes : (page + 1) * self.page_bytes],)

    def save(self, page: int, target: memoryview) -> None:
        """Copy a page's bytes to a buffer."""
        target[:] = self.buffers(page)[0]

    def load(self, page: int, source: memoryview) -> None:
        """Copy a page's bytes from a buffer."""
        self.buffers(page)[0][:] = source


class Lent(NamedTuple):
    """What `lend` puts together. pools: by slot, for each tensor its plan and where the tensor
    begins in a host page, in bytes."""

    model: ModelDescription
    slots: tuple[LentSlot, ...]
    buffers: dict[str, HostBuffer]
    pools: dict[str, tuple[tuple[PoolPlan, int], ...]]

    @property
    def pages(self) -> dict[Tier, dict[str, int]]:
        """Pages by tier and slot: blocks on device, pages of a buffer on host."""
        return {
            Tier.DEVICE: {slot.name: slot.tensors[0].blocks.shape[0] for slot in self.slots},
            Tier.HOST: {slot.name: self.buffers[slot.host].pages for slot in self.slots},
        }


def lend(
    slots: Sequence[LentSlot],
    host_pages: Mapping[str, int],
    layers: int,
    *,
    node: int | None = None,
    shared: frozenset[str] = frozenset(),
) -> Lent:
    """Host buffers for the slots of an engine. host_pages: by component. layers: of the model.
    node: NUMA node. shared: components that are identical on all ranks.

    Raises CallerError for a tensor of another form, and if there is too little memory."""
    pools: dict[str, tuple[tuple[PoolPlan, int], ...]] = {}
    taken = dict.fromkeys(host_pages, 0)
    for slot in slots:
        found = []
        for tensor in slot.tensors:
            plan = _plan(slot.name, tensor)
            found.append((plan, taken[slot.host]))
            taken[slot.host] += plan.page_bytes
        pools[slot.name] = tuple(found)
    described = tuple(plan.pool for slot in slots for plan, _ in pools[slot.name])
    with room({f"host pages of {name}": host_pages[name] * taken[name] for name in host_pages}):
        buffers = {
            name: HostBuffer(name, pages, taken[name], node, name in shared)
            for name, pages in host_pages.items()
        }
    return Lent(_model(described, layers), tuple(slots), buffers, pools)


class LentArena(Arena):
    """The pools of an engine in this process's memory, as numpy arrays."""

    def __init__(self, lent: Lent) -> None:
        PoolTable.__init__(self, lent.model, 1, lent.pages)
        self._backend = "kernel"
        for tier, slot, plans in _each(lent):
            self._pools[tier, slot.name] = tuple(
                Pool(plan, np.asarray(flat), np.asarray(view)) for plan, (flat, view) in plans
            )


class LentTorchArena(TorchArena):
    """The pools of an engine on an accelerator. registrar: registers the host buffers. Close it to
    unregister them; nothing may be under way then."""

    def __init__(self, lent: Lent, registrar: Registrar) -> None:
        PoolTable.__init__(self, lent.model, 1, lent.pages)
        try:
            for buffer in lent.buffers.values():
                segments = cut(buffer.bytes.nbytes, buffer.page_bytes, max(1, buffer.bytes.nbytes))
                self._registrations.append(
                    Registration(buffer.name, buffer.bytes, segments, registrar)
                )
        except BaseException as error:
            try_all(self.close, first=error)
            raise
        for tier, slot, plans in _each(lent):
            self._pools[tier, slot.name] = tuple(Pool(plan, *seen) for plan, seen in plans)


def _each(lent: Lent) -> Any:
    """For each tier and slot, the plan of every pool with its memory: from its first byte on, and
    as a canonical view of it."""
    for slot in lent.slots:
        near, far = [], []
        buffer = lent.buffers[slot.host]
        memory = torch.from_numpy(buffer.bytes)
        for tensor, (plan, start) in zip(slot.tensors, lent.pools[slot.name], strict=True):
            near.append((plan, _near(tensor.blocks)))
            sizes = plan.sizes._replace(page=buffer.pages)
            host = plan._replace(
                label=f"host pool {plan.pool.name}", layout=HOST_LAYOUT, sizes=sizes
            )
            far.append((host, _far(memory, sizes, start, buffer.page_bytes)))
        yield Tier.DEVICE, slot, near
        yield Tier.HOST, slot, far


def _near(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    padded = _padded(blocks)
    span = 1 + sum(
        (size - 1) * step for size, step in zip(padded.shape, padded.stride(), strict=True)
    )
    flat = torch.as_strided(blocks, (span,), (1,), blocks.storage_offset())
    return flat, padded.unsqueeze(0)


def _far(
    memory: torch.Tensor, sizes: Sizes, start: int, page_bytes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (1, sizes.page, sizes.part, sizes.token, sizes.head, sizes.head_bytes)
    row = sizes.head * sizes.head_bytes
    steps = (row, page_bytes, sizes.token * row, row, sizes.head_bytes, 1)
    return memory[start:], torch.as_strided(memory, shape, steps, start)


def _padded(blocks: torch.Tensor) -> torch.Tensor:
    """The view with all dimensions: part, token, head and bytes, those that are missing of size
    1."""
    while blocks.dim() < _DIMENSIONS:
        blocks = blocks.unsqueeze(1)
    return blocks


def _plan(slot: str, tensor: LentTensor) -> PoolPlan:
    blocks = tensor.blocks
    if (
        blocks.dtype != torch.uint8
        or not 2 <= blocks.dim() <= _DIMENSIONS
        or blocks.stride(-1) != 1
        or not blocks.numel()
    ):
        raise CallerError(
            f"{tensor.name}: expected uint8[block, ...] with 1 to {_DIMENSIONS - 1} more "
            f"dimensions, the last contiguous, found {blocks.dtype} {tuple(blocks.shape)} with "
            f"steps {tuple(blocks.stride())}"
        )
    count, part, token, head, size = _padded(blocks).shape
    pool = PoolDescription(
        name=f"{slot}/{tensor.name}",
        component=slot,
        kind="state",
        layers=(tensor.layer,),
        parts=tuple(f"part{number}" for number in range(part)),
        heads=head,
        head_elements=size,
        dtype="fp8",  # of one byte
        page_rows=token,
    )
    sizes = Sizes(1, count, part, token, head, size)
    return PoolPlan(f"device pool {pool.name}", pool, DEVICE_LAYOUT, sizes)


def _model(pools: tuple[PoolDescription, ...], layers: int) -> ModelDescription:
    """The pools as a model of which nothing else is known."""
    unknown: dict[str, Any] = dict.fromkeys(_UNKNOWN, 0)
    source = "the tensors of another engine"
    return ModelDescription(
        name="lent", family="lent", source=source, layers=layers, pools=pools, **unknown
    )
