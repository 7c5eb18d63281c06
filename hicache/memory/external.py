"""Pools on a device whose memory another engine owns, and host memory for their pages.

    device   a view of each of the engine's tensors: uint8[block, ...]. Pages are its blocks
    host     one buffer for each component. A page is contiguous, one tensor's block after another

Several blocks of an engine may make up one page on host, as where the groups of a hybrid model have
blocks of different sizes. Each of them is a *slot*, a component of the arena of its own: blocks of
the engine on device, pages of the buffer on host. So a copy of one page is a copy in each slot.

`hicache/vllm` finds the tensors of an engine, and a device copies.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.models.base import ModelDescription, PoolDescription

from .host import Registrar, Registration, allocate, enough, try_all
from .layouts import Bytes, Sizes
from .pools import DEVICE_LAYOUT, Arena, Pool, PoolPlan, PoolTable
from .torch_arena import TorchArena

HOST_LAYOUT = "page_first_direct"
_DIMENSIONS = 5  # of the view of a tensor: block, and the part, token, head and bytes of a pool


class ExternalTensor(NamedTuple):
    """One tensor of an engine. layer: of the model. blocks: uint8[block, ...], up to four more
    dimensions, the last of them contiguous."""

    name: str
    layer: int
    blocks: torch.Tensor


class ExternalSlot(NamedTuple):
    """Blocks that are copied together. host: the component whose buffer has their pages, in which
    the tensors follow those of the slots before."""

    name: str
    host: str
    tensors: tuple[ExternalTensor, ...]


class HostBuffer:
    """The host pages of one component, and how a store sees them (`PagePool`). shared: every rank
    has the same bytes."""

    def __init__(self, name: str, pages: int, page_bytes: int, shared: bool) -> None:
        """Raises CallerError if there is too little memory."""
        self.name, self.pages, self.page_bytes = name, pages, page_bytes
        self.shared = shared
        self.bytes: Bytes = allocate(f"host pages of {name}", pages * page_bytes)
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


class External(NamedTuple):
    """What `lend` puts together: pools of tensors by tier and slot. pages: the same way, blocks on
    device, pages of a buffer on host."""

    model: ModelDescription
    slots: tuple[ExternalSlot, ...]
    buffers: dict[str, HostBuffer]
    pages: dict[Tier, dict[str, int]]
    pools: dict[tuple[Tier, str], tuple[Pool, ...]]


def lend(
    slots: Sequence[ExternalSlot],
    host_pages: Mapping[str, int],
    layers: int,
    *,
    shared: frozenset[str] = frozenset(),
) -> External:
    """Host buffers for the slots of an engine. host_pages: by component. layers: of the model.
    shared: components that are identical on all ranks.

    Raises CallerError for a tensor of another form, and if there is too little memory."""
    plans: dict[str, list[tuple[PoolPlan, int]]] = {}  # with where it begins in a host page
    taken = dict.fromkeys(host_pages, 0)
    for slot in slots:
        plans[slot.name] = []
        for tensor in slot.tensors:
            plan = _plan(slot.name, tensor)
            plans[slot.name].append((plan, taken[slot.host]))
            taken[slot.host] += plan.page_bytes
    with enough({f"host pages of {name}": host_pages[name] * taken[name] for name in host_pages}):
        buffers = {
            name: HostBuffer(name, pages, taken[name], name in shared)
            for name, pages in host_pages.items()
        }
    pools: dict[tuple[Tier, str], tuple[Pool, ...]] = {}
    for slot in slots:
        parts = list(zip(slot.tensors, plans[slot.name], strict=True))
        pools[Tier.DEVICE, slot.name] = tuple(_near(tensor, plan) for tensor, (plan, _) in parts)
        pools[Tier.HOST, slot.name] = tuple(
            _far(buffers[slot.host], plan, start) for _, (plan, start) in parts
        )
    pages = {
        Tier.DEVICE: {slot.name: slot.tensors[0].blocks.shape[0] for slot in slots},
        Tier.HOST: {slot.name: host_pages[slot.host] for slot in slots},
    }
    described = tuple(plan.pool for slot in slots for plan, _ in plans[slot.name])
    return External(
        ModelDescription("lent", layers, described), tuple(slots), buffers, pages, pools
    )


class ExternalArena(Arena):
    """The pools of an engine in this process's memory, as numpy arrays."""

    def __init__(self, external: External) -> None:
        PoolTable.__init__(self, external.model, 1, external.pages)
        self._backend = "kernel"
        for place, pools in external.pools.items():
            self._pools[place] = tuple(
                Pool(pool.plan, np.asarray(pool.flat), np.asarray(pool.view)) for pool in pools
            )


class ExternalTorchArena(TorchArena):
    """The pools of an engine on an accelerator. registrar: registers the host buffers. Close it to
    unregister them; nothing may be under way then."""

    def __init__(self, external: External, registrar: Registrar) -> None:
        PoolTable.__init__(self, external.model, 1, external.pages)
        self._pools = dict(external.pools)
        try:
            for buffer in external.buffers.values():
                registered = Registration(buffer.name, buffer.bytes, 0, registrar)
                self._registrations.append(registered)
        except BaseException as error:
            try_all(self.close, first=error)
            raise


def _near(tensor: ExternalTensor, plan: PoolPlan) -> Pool:
    padded = _padded(tensor.blocks)
    span = 1 + sum(
        (size - 1) * step for size, step in zip(padded.shape, padded.stride(), strict=True)
    )
    flat = torch.as_strided(tensor.blocks, (span,), (1,), tensor.blocks.storage_offset())
    return Pool(plan, flat, padded.unsqueeze(0))


def _far(buffer: HostBuffer, plan: PoolPlan, start: int) -> Pool:
    memory, size = torch.from_numpy(buffer.bytes), plan.sizes._replace(page=buffer.pages)
    row = size.head * size.head_bytes
    shape = (1, size.page, size.part, size.token, size.head, size.head_bytes)
    steps = (row, buffer.page_bytes, size.token * row, row, size.head_bytes, 1)
    host = plan._replace(label=f"host pool {plan.pool.name}", layout=HOST_LAYOUT, sizes=size)
    return Pool(host, memory[start:], torch.as_strided(memory, shape, steps, start))


def _padded(blocks: torch.Tensor) -> torch.Tensor:
    """The view with all dimensions: part, token, head and bytes, those that are missing of size
    1."""
    while blocks.dim() < _DIMENSIONS:
        blocks = blocks.unsqueeze(1)
    return blocks


def _plan(slot: str, tensor: ExternalTensor) -> PoolPlan:
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
