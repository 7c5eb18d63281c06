"""The memory of one pool: a device pool or a host pool.

The plan of a pool (sizes and bytes) follows from its description alone, without any branch on its
name or kind. Does not handle several pools at once; see `arena` and `torch_arena`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple, Self

import numpy as np

from hicache.core.errors import CallerError
from hicache.models.base import ModelDescription, PoolDescription, heads_per_rank

from .host import allocate
from .layouts import Bytes, Sizes, Words, canonical, run_bytes, shape, stamp
from .segments import DEFAULT_BYTES, Registrar, Registration, cut

DEVICE_LAYOUT = "layer_first"


class PoolPlan(NamedTuple):
    """A pool on one tier of one rank, before it has memory. `label` names it in messages."""

    label: str
    pool: PoolDescription
    layout: str
    sizes: Sizes

    @classmethod
    def of(
        cls, tier: str, pool: PoolDescription, pages: int, page_size: int, layout: str, tp: int = 1
    ) -> PoolPlan:
        """The plan of a pool. Raises CallerError for a negative number of pages, a page size that
        the pool cannot use, and heads that cannot be divided between `tp` ranks."""
        if pages < 0:
            raise CallerError(f"{tier} pages: expected 0 or more, found {pages}")
        sizes = Sizes(
            layer=len(pool.layers),
            page=pages,
            part=len(pool.parts),
            token=pool.rows_per_page(page_size),
            head=heads_per_rank(pool.heads, tp),
            head_bytes=pool.head_bytes,
        )
        return cls(f"{tier} pool {pool.name}", pool, layout, sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the buffer, in the layout's order."""
        return shape(self.layout, self.sizes)

    @property
    def page_bytes(self) -> int:
        size = self.sizes
        return size.layer * size.part * size.token * size.head * size.head_bytes

    @property
    def total_bytes(self) -> int:
        return self.sizes.page * self.page_bytes

    @property
    def run_bytes(self) -> int:
        """Contiguous bytes of a page."""
        return run_bytes(self.layout, self.sizes)

    def layers_in(self, first: int, last: int) -> range:
        """The pool's own layer indices among the model's layers first..last-1."""
        return range(bisect_left(self.pool.layers, first), bisect_left(self.pool.layers, last))

    def stamped(self, seeds: Words, number: int, layers: range) -> Bytes:
        """The canonical bytes of pages with these seeds, for `layers`. number: of the pool within
        its component."""
        size = self.sizes
        row = size.head * size.head_bytes
        rows = stamp(seeds, number, layers, size.part, size.token, row)
        return rows.reshape(*rows.shape[:4], size.head, size.head_bytes)


def contents_of(
    model: ModelDescription, page_size: int, tp: int = 1
) -> dict[str, tuple[PoolPlan, ...]]:
    """For each component, plans of its pools with 0 pages, to compute contents without memory."""
    return {
        component: tuple(
            PoolPlan.of("device", pool, 0, page_size, DEVICE_LAYOUT, tp)
            for pool in model.pools_of(component)
        )
        for component in model.components
    }


class Pool:
    """The memory of a plan. `flat` is all of it; `view` is the same in canonical order (see
    `layouts`)."""

    __slots__ = ("flat", "plan", "view")

    def __init__(self, plan: PoolPlan, node: int | None = None) -> None:
        self.plan = plan
        self.flat = allocate(plan.label, plan.total_bytes, node)
        self.view = canonical(self.flat.reshape(plan.shape), plan.layout)

    @classmethod
    def over(cls, plan: PoolPlan, flat: Bytes, view: Bytes) -> Self:
        """A pool over memory that somebody else has. view: in canonical order."""
        pool = cls.__new__(cls)
        pool.plan, pool.flat, pool.view = plan, flat, view
        return pool

    def page(self, number: int) -> Bytes:
        """A copy of the page's bytes in canonical order: equal for equal pages in any layout."""
        return np.ascontiguousarray(self.view[:, number])

    def raw(self, number: int) -> Bytes:
        """The bytes of the page in this layout's order. Raises CallerError for layer_first, where a
        page is not contiguous."""
        if self.plan.layout == DEVICE_LAYOUT:
            raise CallerError(
                f"{self.plan.label}: expected a layout whose pages are one run, found "
                f"{DEVICE_LAYOUT}; use page_first, page_first_direct or page_head"
            )
        size = self.plan.page_bytes
        return self.flat[number * size : (number + 1) * size]


class DevicePool(Pool):
    """The pool that attention reads, in layer_first."""

    __slots__ = ()

    def __init__(self, pool: PoolDescription, pages: int, page_size: int, *, tp: int = 1) -> None:
        super().__init__(PoolPlan.of("device", pool, pages, page_size, DEVICE_LAYOUT, tp))


class HostPool(Pool):
    """A pool in host memory. It is registered once, in segments whose borders cut no contiguous
    run of a page."""

    __slots__ = ("_registration", "segments")

    def __init__(
        self,
        pool: PoolDescription,
        pages: int,
        page_size: int,
        layout: str,
        *,
        tp: int = 1,
        node: int | None = None,
        registrar: Registrar | None = None,
        segment_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """node: NUMA node to which the memory is bound. registrar: registers every segment once.

        Raises CallerError as `PoolPlan.of` does, and if memory cannot be allocated or
        registered."""
        super().__init__(PoolPlan.of("host", pool, pages, page_size, layout, tp), node)
        self.segments = cut(self.plan.total_bytes, self.plan.run_bytes, segment_bytes)
        self._registration = (
            Registration(self.plan.label, self.flat, self.segments, registrar)
            if registrar is not None
            else None
        )

    def close(self) -> None:
        """Unregister the memory. The bytes stay readable while something refers to them."""
        if self._registration is not None:
            self._registration.close()
