"""The pages of one of SGLang's host pools, as buffers that a store reads and writes.

SGLang's interface of a pool is `get_data_page(index)`, the bytes of a page in one order whatever
the layout, and `set_from_flat_data_page`. Where the first is a view of the pool's memory, a store
moves bytes from and to that memory; otherwise there is a copy. Imports nothing of SGLang.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from hicache.core.errors import CallerError
from hicache.storage.base import Value

# Of one call of a store: a call that takes too long counts as an outage, on a slow disk, too.
_MOST_BYTES = 32 << 20


class Room(NamedTuple):
    """Where a page is read to. page: a tensor that the pool takes over, or None: it is there."""

    value: Value
    page: Any


class HostPages:
    """The pages of a pool. in_place: a store can use the pool's memory. form: what the bytes of a
    page mean, for keys."""

    def __init__(self, name: str, pool: Any) -> None:
        """Raises CallerError for a pool whose pages are no bytes that can be had."""
        self.name, self.pool = name, pool
        self.page_size = int(getattr(pool, "page_size", 1) or 1)
        try:
            first, again = (pool.get_data_page(0, flat=False) for _ in range(2))
            flat = pool.get_data_page(0, flat=True)
        except (AttributeError, NotImplementedError, TypeError) as error:
            raise CallerError(
                f"host pool {name}: expected one whose pages can be had as bytes, found "
                f"{type(pool).__name__}: {str(error)[:120] or type(error).__name__}; use another "
                "storage backend with this model or layout"
            ) from None
        self.page_bytes = flat.numel() * flat.element_size()
        if not self.page_bytes or flat.device.type != "cpu":
            raise CallerError(
                f"host pool {name}: expected pages in host memory, found {type(pool).__name__} "
                f"with {self.page_bytes} bytes on {flat.device.type}"
            )
        self.in_place = _is_view(pool, first, again) and first.numel() == flat.numel()
        self.form = {
            "pool": name,
            "class": type(pool).__name__,
            "dtype": [str(getattr(pool, "dtype", "")), str(flat.dtype)],
            "layout": str(getattr(pool, "layout", "")),
            "format": str(getattr(pool, "storage_format_tag", None)),
            "page_size": self.page_size,
            "page_bytes": self.page_bytes,
            "shape": list(first.shape),
            "layers": [
                getattr(pool, one, None) for one in ("start_layer", "end_layer", "layer_num")
            ],
        }
        kinds = {one.__name__ for one in type(pool).__mro__}
        self.per_rank = bool(kinds & _PER_RANK)

    def parts(self, count: int) -> list[range]:
        """The numbers of so many pages, in runs for one call of a store each."""
        step = max(1, _MOST_BYTES // self.page_bytes)
        return [range(start, min(count, start + step)) for start in range(0, count, step)]

    def starts(self, keys: int, slots: Any) -> list[int] | None:
        """The first slot of each page, or None where their number is not that of the keys."""
        if slots is None or slots.numel() != keys * self.page_size:
            return None
        return [int(slot) for slot in slots[:: self.page_size]]

    def held(self, start: int) -> Value:
        """The bytes of a page, to be written to a store."""
        if self.in_place:
            return runs(self.pool.get_data_page(start, flat=False))
        return flat_value(self.pool.get_data_page(start, flat=True))

    def room(self, start: int) -> Room:
        """Memory to read a page to; then `arrived`."""
        if self.in_place:
            return Room(runs(self.pool.get_data_page(start, flat=False)), None)
        page = self.pool.get_dummy_flat_data_page().reshape(-1)
        return Room(flat_value(page), page)

    def arrived(self, start: int, room: Room) -> None:
        """What was read is the pool's."""
        if room.page is not None:
            self.pool.set_from_flat_data_page(start, room.page)


# Pools that have a part of each page on every rank, whatever the model's keys and values have.
_PER_RANK = {"MHATokenToKVPoolHost", "MHATokenToKOnlyPoolHost", "MambaPoolHost"}


def flat_value(page: Any) -> Value:
    """The bytes of a contiguous tensor."""
    array = page.contiguous().view(torch.uint8).numpy().reshape(-1)
    return (array.data,)


def runs(view: Any) -> Value:
    """The bytes of a view in the order of its indices, what is contiguous in one buffer."""
    raw = view.view(torch.uint8)
    shape, strides = raw.shape, raw.stride()
    split, whole = raw.dim(), 1
    while split and (shape[split - 1] == 1 or strides[split - 1] == whole):
        split -= 1
        whole *= shape[split]
    array = raw.numpy()
    return tuple(array[at].reshape(-1).data for at in np.ndindex(*shape[:split]))


def _is_view(pool: Any, first: Any, again: Any) -> bool:
    """Whether a page is the pool's own memory, at a place that stays."""
    if getattr(pool, "shared_allocation_domain", None) is not None:
        return False
    bounds = first.untyped_storage().data_ptr(), again.untyped_storage().data_ptr()
    return bounds[0] == bounds[1] and bool(first.stride() and first.stride(-1) == 1)
