"""The memory of all pools of a model as torch tensors: device pools, and views of host pools.

It calls no CUDA functions: a device gives it a torch device, the free bytes there, and a way to
register memory. It also works on the CPU, where it is tested.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.models.base import ModelDescription

from .host import DEFAULT_BYTES, Registrar
from .layouts import Bytes, Words, axes
from .pools import DEVICE_LAYOUT, Pool, PoolPlan, PoolTable

_GOLDEN = 0x9E3779B97F4A7C15


class Place(NamedTuple):
    """Where device tensors are allocated. free: returns the bytes left there."""

    device: torch.device
    free: Callable[[], int]


class TorchArena(PoolTable):
    """All pools of one model on the device and host tiers of one rank."""

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        pages: Mapping[Tier, Mapping[str, int]],
        place: Place,
        *,
        layout: str,
        backend: str,
        tp: int = 1,
        registrar: Registrar | None = None,
        segment_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """pages: [tier][component], number of pages. Raises CallerError as `_allocate` does."""
        super().__init__(model, page_size, pages)
        self._place = place
        self._allocate(layout, backend, tp, registrar, segment_bytes)

    def _taken(self, wanted: dict[str, int]) -> dict[str, int]:
        total, free = sum(wanted.values()), self._place.free()
        if total > free:
            parts = ", ".join(f"{name} {size}" for name, size in wanted.items())
            raise CallerError(
                f"memory: expected room for {total} bytes ({parts}), and {self._place.device} has "
                f"{free} free; ask for fewer pages"
            )
        return {}

    def _near(self, plan: PoolPlan) -> Pool:
        with in_room(f"for {plan.total_bytes} bytes of {plan.label}"):
            flat = torch.zeros(plan.total_bytes, dtype=torch.uint8, device=self._place.device)
        return _seen(plan, flat, 0)

    def _far(self, plan: PoolPlan, flat: Bytes, segment: int) -> Pool:
        return _seen(plan, torch.from_numpy(flat), segment)

    def _page(self, pool: Pool, number: int) -> Bytes:
        page: Bytes = pool.view[:, number].contiguous().cpu().numpy()
        return page


@contextmanager
def in_room(purpose: str) -> Iterator[None]:
    """Turns a lack of memory in the block into a CallerError of one line: torch raises
    OutOfMemoryError for device memory, and for pinned memory a RuntimeError with CUDA's words."""
    try:
        yield
    except RuntimeError as error:
        line = str(error).splitlines()[0] if str(error) else ""
        if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in line:
            raise
        raise CallerError(
            f"memory: expected room {purpose}, found {line}; ask for fewer pages"
        ) from None


def scratch(plan: PoolPlan, pages: int, device: torch.device) -> Pool:
    """Device memory for some pages of a pool, with undefined bytes, allocated for the current
    stream."""
    shaped = plan._replace(layout=DEVICE_LAYOUT, sizes=plan.sizes._replace(page=pages))
    flat = torch.empty(shaped.total_bytes, dtype=torch.uint8, device=device)
    return _seen(shaped, flat, 0)


def _seen(plan: PoolPlan, flat: torch.Tensor, segment: int) -> Pool:
    return Pool(plan, flat, flat.view(plan.shape).permute(axes(plan.layout)), segment)


def stamp_tensor(plan: PoolPlan, seeds: torch.Tensor, number: int, layers: range) -> torch.Tensor:
    """`PoolPlan.stamped` in torch, on the seeds' device: the same bytes for the same seeds.

    seeds: int64[n], from `as_seeds`. Products of int64 wrap like unsigned ones.
    """
    size, place = plan.sizes, seeds.device
    row = size.head * size.head_bytes
    words = -(-row // 8)
    spots = torch.arange(1, size.part * size.token * words + 1, dtype=torch.int64, device=place)
    layer = torch.arange(layers.start, layers.stop, dtype=torch.int64, device=place)
    salts = _mix((layer | (number << 32)) + _signed(_GOLDEN))
    roots = _mix(seeds[None, :] ^ salts[:, None])
    filled = _mix(roots[:, :, None] + spots * _signed(_GOLDEN))
    rows = filled.view(torch.uint8).view(len(layers), len(seeds), size.part, size.token, words * 8)
    return rows[..., :row].reshape(*rows.shape[:4], size.head, size.head_bytes)


def as_seeds(seeds: Words) -> NDArray[np.int64]:
    """Unsigned seeds as int64 with the same bits, because torch computes with int64."""
    return np.ascontiguousarray(seeds, dtype=np.uint64).view(np.int64)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shifted(words: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right. The shift of torch on int64 repeats the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _mix(words: torch.Tensor) -> torch.Tensor:
    words = (words ^ _shifted(words, 30)) * _signed(0xBF58476D1CE4E5B9)
    words = (words ^ _shifted(words, 27)) * _signed(0x94D049BB133111EB)
    return words ^ _shifted(words, 31)
