"""The interface of an I/O backend of a CUDA device: it queues one copy on a stream.

An entry has a class `Mover` with these members. It does not choose pages, order streams, or keep
memory alive; see `hicache/devices/_traffic`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import torch

from hicache.core.types import Pages
from hicache.memory.runs import Offsets, Pair, Rows, pair
from hicache.memory.torch_arena import TorchPool

Batch: TypeAlias = Callable[[Offsets, Offsets, Offsets], None]
BatchRows: TypeAlias = Callable[[Offsets, Offsets, int, Rows], None]


class Route(NamedTuple):
    """One pool on the source tier and on the target tier."""

    source: TorchPool
    target: TorchPool
    pair: Pair


class Move(NamedTuple):
    """A copy of one pool. pages: (source, target); the target pages are distinct. layers: the
    pool's own layer indices.

    numbers: the same pages as int64[2, n] on the device, if the mover needs them. again: whether
    other layers of the same arrays of pages follow.
    """

    route: Route
    pages: tuple[Pages, Pages]
    numbers: torch.Tensor | None
    layers: range
    again: bool = False


class Options(NamedTuple):
    """blocks: programs of a kernel, which limits how many multiprocessors it uses.

    batch: a function that makes many copies (target addresses, source addresses, lengths in bytes)
    on the current stream in one call; None if there is none. batch_rows: one that makes many copies
    of rows (target and source addresses, bytes of a row, rows).
    """

    blocks: int
    batch: Batch | None
    batch_rows: BatchRows | None = None


class Mover(Protocol):
    """needs_numbers: whether a `Move` must have the page numbers on the device."""

    needs_numbers: bool

    def __init__(self, options: Options) -> None: ...

    def copy(self, job: Move) -> None:
        """Queue the copy on the current stream."""


def route(source: TorchPool, target: TorchPool) -> Route:
    """The route between two views of one pool."""
    largest = min(source.plan.run_bytes, target.plan.run_bytes)
    shape = tuple(source.view.shape[2:])
    found = pair(shape, source.view.stride(), target.view.stride(), largest)
    return Route(source, target, found)
