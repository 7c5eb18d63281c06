"""The shape of a model's copies: how many contiguous pieces a page has, and how long they are.

Copies of the same number of bytes take different times if their pieces differ, so a measurement of
one shape says little of another. Does not measure or copy; see `runs` for the pieces themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hicache.models.base import ModelDescription

from .layouts import axes
from .pools import DEVICE_LAYOUT, PoolPlan
from .runs import pair


class CopyShape(NamedTuple):
    """One pool. layers: that it has. pieces: contiguous on both tiers, of one page in one layer.
    piece_bytes: of each."""

    pool: str
    layers: int
    pieces: int
    piece_bytes: int

    @property
    def of_copies(self) -> tuple[int, int, int]:
        """What the time of a copy depends on, beside the number of pages."""
        return self.layers, self.pieces, self.piece_bytes

    def __str__(self) -> str:
        return (
            f"{self.pool} with {self.layers:,} layers of {self.pieces:,} x "
            f"{self.piece_bytes:,} bytes a page"
        )


def copy_shapes(
    model: ModelDescription, component: str, page_size: int, layout: str, tp: int = 1
) -> tuple[CopyShape, ...]:
    """The shapes of a component's pools, between the device and a host of this layout. Pools
    without bytes are left out."""
    found = []
    for pool in model.pools_of(component):
        near, far = (
            PoolPlan.of("any", pool, 2, page_size, one, tp) for one in (DEVICE_LAYOUT, layout)
        )
        if near.total_bytes:
            steps = [_steps(plan) for plan in (near, far)]
            sizes = [near.shape[axis] for axis in axes(DEVICE_LAYOUT)]
            one = pair(sizes[2:], steps[0], steps[1], min(near.run_bytes, far.run_bytes))
            found.append(CopyShape(pool.name, near.sizes.layer, one.pieces, one.length))
    return tuple(found)


def _steps(plan: PoolPlan) -> list[int]:
    """Bytes between neighbours along each dimension of the canonical view."""
    steps = np.cumprod((1, *plan.shape[:0:-1]))[::-1]
    return [int(steps[axis]) for axis in axes(plan.layout)]


def all_shapes(
    model: ModelDescription, page_size: int, layout: str, tp: int = 1
) -> tuple[CopyShape, ...]:
    """The shapes of every component's pools."""
    return tuple(
        shape
        for component in model.components
        for shape in copy_shapes(model, component, page_size, layout, tp)
    )


def outside(
    found: Iterable[CopyShape], measured: Iterable[Mapping[str, Any]]
) -> tuple[CopyShape, ...]:
    """The shapes that no measured one is equal to, whatever their pools are called. measured: the
    fields of shapes, as in a measured profile."""
    known = {CopyShape(**fields).of_copies for fields in measured}
    return tuple(shape for shape in found if shape.of_copies not in known)
