"""A digest of every byte of tensors, at the speed at which memory is read.

Large tensors are read in parts, on several threads. Tensors on an accelerator are copied part by
part. Does not know what the tensors belong to; see `computation`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import torch
import xxhash
from torch.multiprocessing.reductions import StorageWeakRef

from ..errors import UnsupportedModelError

PART_BYTES = 1 << 24
_FEW_BYTES = 1 << 22  # are read at once by the thread that asks
_THREADS = 8
_UNCOUNTED = -1
Version = tuple[Any, ...]


class Contents:
    """Digests of tensors. Those that somebody may have written without a trace are read again."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self._known: dict[Version, tuple[bytes, StorageWeakRef]] = {}

    def digests(
        self, tensors: Sequence[torch.Tensor], versions: Sequence[Version], again: bool
    ) -> list[bytes]:
        """The digest of each tensor's elements. versions: of the tensors. again: read those also
        whose version is known."""
        wanted = {
            key: tensor
            for key, tensor in zip(versions, tensors, strict=True)
            if again or key[-1] == _UNCOUNTED or key not in self._known
        }
        found = _read(list(wanted.values()))
        self.read_bytes += sum(one.numel() * one.element_size() for one in wanted.values())
        fresh = dict(zip(wanted, found, strict=True))
        self._known = {
            key: (fresh[key], _weak(wanted[key])) if key in fresh else self._known[key]
            for key in versions
        }
        return [self._known[key][0] for key in versions]


def _weak(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def version_of(name: str, tensor: torch.Tensor) -> Version:
    """Equal for tensors that are the same memory at the same version. A storage is named by its
    record, which stays as long as somebody refers to it weakly. name: for an error.

    Raises UnsupportedModelError for one without memory of its own."""
    try:
        storage = tensor.untyped_storage()
        place = (storage._cdata, storage.data_ptr(), tensor.storage_offset(), tensor.stride())
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        raise UnsupportedModelError(
            f"weight {name}: expected a tensor with memory of its own, found "
            f"{type(tensor).__name__} of layout {tensor.layout}; load the model with plain weights"
        ) from error
    version = _UNCOUNTED if tensor.is_inference() else tensor._version
    return (*place, tuple(tensor.shape), tensor.dtype, version)


def _read(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    total = sum(one.numel() * one.element_size() for one in tensors)
    if total <= _FEW_BYTES:
        return [_joined(map(_digest, _parts(one))) for one in tensors]
    counts = [max(1, -(-one.numel() * one.element_size() // PART_BYTES)) for one in tensors]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        found = iter(pool.map(_digest, chain.from_iterable(map(_parts, tensors))))
        return [_joined(next(found) for _ in range(count)) for count in counts]


def _parts(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The elements in order, in parts of at most PART_BYTES. One part if there are none."""
    flat = tensor.detach().contiguous().reshape(-1)
    size = PART_BYTES // flat.element_size()
    return (flat,) if flat.numel() <= size else torch.split(flat, size)


def _digest(part: torch.Tensor) -> bytes:
    return xxhash.xxh3_128_digest(part.cpu().view(torch.uint8).numpy().data)


def _joined(parts: Iterator[bytes]) -> bytes:
    found = list(parts)
    return found[0] if len(found) == 1 else xxhash.xxh3_128_digest(b"".join(found))
