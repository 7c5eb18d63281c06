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
_UNKNOWN = -1


class Contents:
    """Digests of tensors. Those that somebody may have written without a trace are read again."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self._known: dict[tuple[Any, ...], tuple[bytes, StorageWeakRef]] = {}

    def digests(self, tensors: Sequence[tuple[str, torch.Tensor]], again: bool) -> list[bytes]:
        """The digest of each tensor's elements. again: read those also whose version is known.

        Raises UnsupportedModelError for one without memory of its own."""
        keys: list[tuple[Any, ...]] = []
        wanted: dict[tuple[Any, ...], torch.Tensor] = {}
        for name, tensor in tensors:
            key = _key(name, tensor)
            keys.append(key)
            if again or key not in self._known:
                wanted.setdefault(key, tensor)
        found = _read(list(wanted.values()))
        self.read_bytes += sum(one.numel() * one.element_size() for one in wanted.values())
        fresh = dict(zip(wanted, found, strict=True))
        self._known = {
            key: (fresh[key], _weak(wanted[key])) if key in fresh else self._known[key]
            for key in keys
        }
        return [self._known[key][0] for key in keys]

    def versions(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> list[tuple[Any, ...]]:
        """What changes when a tensor is replaced, or written in a way that torch counts."""
        return [_key(name, tensor) for name, tensor in tensors]


def _weak(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _key(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same memory at the same version. A storage is named by its
    record, which stays as long as somebody refers to it weakly."""
    try:
        storage = tensor.untyped_storage()
        place = (storage._cdata, storage.data_ptr(), tensor.storage_offset(), tensor.stride())
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        raise UnsupportedModelError(
            f"weight {name}: expected a tensor with memory of its own, found "
            f"{type(tensor).__name__} of layout {tensor.layout}; load the model with plain weights"
        ) from error
    version = _UNKNOWN if tensor.is_inference() else tensor._version
    return (*place, tuple(tensor.shape), tensor.dtype, version)


def _read(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    total = sum(one.numel() * one.element_size() for one in tensors)
    if total <= _FEW_BYTES:
        return [_joined(map(_digest, _parts(one))) for one in tensors]
    counts = [max(1, -(-one.numel() * one.element_size() // PART_BYTES)) for one in tensors]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        found = iter(pool.map(_digest, chain.from_iterable(map(_parts, tensors))))
        return [_joined(next(found) for _ in range(count)) for count in counts]


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements in order, in parts of at most PART_BYTES. One part if there are none."""
    with torch.inference_mode(False), torch.no_grad():
        flat = tensor.detach()
        flat = (flat if flat.is_contiguous() else flat.contiguous()).reshape(-1)
        yield from torch.split(flat, PART_BYTES // flat.element_size()) if flat.numel() else (flat,)


def _digest(part: torch.Tensor) -> bytes:
    return xxhash.xxh3_128_digest(part.cpu().view(torch.uint8).numpy().data)


def _joined(parts: Iterator[bytes]) -> bytes:
    found = list(parts)
    return found[0] if len(found) == 1 else xxhash.xxh3_128_digest(b"".join(found))
