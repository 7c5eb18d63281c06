"""What every I/O backend of a CUDA device is: something that queues one copy on a stream.

An entry holds a class `Mover` with these members. Must not live here: which pages move, order
between streams, or how long anything must stay alive (the device sees to that).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import torch

from hicache.core.types import Pages
from hicache.memory.runs import Offsets, Pair, pair
from hicache.memory.torch_arena import TorchPool

Batch: TypeAlias = Callable[[Offsets, Offsets, Offsets], None]


class Route(NamedTuple):
    """One pool's way from a tier to the other."""

    source: TorchPool
    target: TorchPool
    pair: Pair


class Move(NamedTuple):
    """Pages (source, target) of one pool, in its own layers. Targets differ from one another.

    numbers: int64[2, n] on the device, the same pages, where the mover needs them.
    """

    route: Route
    pages: tuple[Pages, Pages]
    numbers: torch.Tensor | None
    layers: range


class Options(NamedTuple):
    """blocks: programs of a kernel, which bounds the multiprocessors that it takes.

    batch: copies all of (target addresses, source addresses, lengths) on the current stream; None
    where only one copy at a time can be asked for.
    """

    blocks: int
    batch: Batch | None


class Mover(Protocol):
    """needs_numbers: whether a `Move` must have the page numbers on the device."""

    needs_numbers: bool

    def __init__(self, options: Options) -> None: ...

    def copy(self, job: Move) -> None:
        """Queue it on the current stream."""


def route(source: TorchPool, target: TorchPool) -> Route:
    """The way between two views of one pool."""
    largest = min(source.plan.run_bytes, target.plan.run_bytes)
    shape = tuple(source.view.shape[2:])
    found = pair(shape, source.view.stride(), target.view.stride(), largest)
    return Route(source, target, found)
