"""Pools: their plans, which follow from their descriptions alone; the table of a model's pools on
each tier of one rank; their memory in numpy; and how a store and a copy see their pages.

`torch_arena` has the same pools in torch.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.models.base import ModelDescription, PoolDescription, heads_per_rank

from .host import DEFAULT_BYTES, Registrar, Registration, allocate, enough, try_all
from .layouts import (
    Bytes,
    Sizes,
    Words,
    axes,
    canonical,
    check,
    copy_direct,
    copy_kernel,
    run_bytes,
    shape,
    stamp,
)
from .runs import pair, segment_bytes

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


class Pool(NamedTuple):
    """The memory of a plan: `flat` is all of it, `view` the same in canonical order (see
    `layouts`); arrays of numpy, or tensors. segment: bytes of one registration of `flat`; 0 if
    there is only one or none."""

    plan: PoolPlan
    flat: Any
    view: Any
    segment: int = 0

    @classmethod
    def of(cls, plan: PoolPlan, flat: Bytes, segment: int = 0) -> Pool:
        """A pool over an array of numpy."""
        return cls(plan, flat, canonical(flat.reshape(plan.shape), plan.layout), segment)


class PoolTable(ABC):
    """All pools of one model on the device and host tiers of one rank, by tier and component. Close
    it to unregister host memory."""

    def __init__(
        self, model: ModelDescription, page_size: int, pages: Mapping[Tier, Mapping[str, int]]
    ) -> None:
        self.model = model
        self.page_size = page_size
        self.pages = {tier: dict(sizes) for tier, sizes in pages.items()}
        self._pools: dict[tuple[Tier, str], tuple[Pool, ...]] = {}
        self._registrations: list[Registration] = []

    def _allocate(
        self, layout: str, backend: str, tp: int, registrar: Registrar | None, wanted: int
    ) -> None:
        """Make all pools. layout: of the host tier, whose memory is registered in segments of about
        so many bytes.

        Raises CallerError for an unknown layout or backend, for a backend that cannot copy the
        layout, for sizes that are negative or do not name exactly the model's components, and if
        memory cannot be allocated or registered."""
        check(layout, backend)
        plans: dict[tuple[Tier, str], list[PoolPlan]] = {}
        for tier, sizes in self.pages.items():
            name = tier.name.lower()
            if set(sizes) != set(self.model.components):
                raise CallerError(
                    f"{name} pages: expected sizes for {', '.join(self.model.components)}, "
                    f"found {', '.join(sizes) or 'none'}"
                )
            order = DEVICE_LAYOUT if tier is Tier.DEVICE else layout
            for component, count in sizes.items():
                plans[tier, component] = [
                    PoolPlan.of(name, pool, count, self.page_size, order, tp)
                    for pool in self.model.pools_of(component)
                ]

        def on_host(plan: PoolPlan) -> Pool:
            flat = allocate(plan.label, plan.total_bytes)
            segment = segment_bytes(plan.run_bytes, plan.total_bytes, wanted)
            if registrar is not None:
                self._registrations.append(Registration(plan.label, flat, segment, registrar))
            return self._far(plan, flat, segment)

        def bytes_on(wanted: Tier) -> dict[str, int]:
            chosen = (planned for (tier, _), planned in plans.items() if tier is wanted)
            return {plan.label: plan.total_bytes for planned in chosen for plan in planned}

        try:
            with enough({**self._taken(bytes_on(Tier.DEVICE)), **bytes_on(Tier.HOST)}):
                for (tier, component), planned in plans.items():
                    make = self._near if tier is Tier.DEVICE else on_host
                    self._pools[tier, component] = tuple(map(make, planned))
        except BaseException as error:
            try_all(self.close, first=error)
            raise

    def close(self) -> None:
        """Unregister the host pools, also those after one that fails. Their bytes stay readable
        while something refers to them; an accelerator must be idle."""
        registered, self._registrations = self._registrations, []
        try_all(*(registration.close for registration in registered))

    def pools(self, tier: Tier, component: str) -> tuple[Pool, ...]:
        """The pools that the component's page numbers index on a tier: its own, then its sidecars.

        Includes empty pools. Raises CallerError for an unknown component or tier.
        """
        pool = self._pools.get((tier, component))
        if pool is None:
            known = ", ".join(f"{name} on {at.name.lower()}" for at, name in self._pools)
            raise CallerError(
                f"pool: expected one of {known}, found {component} on {tier.name.lower()}"
            )
        return pool

    def check_pages(self, tier: Tier, component: str, pages: Pages) -> None:
        """Raises CallerError for a page number outside the component's pools on the tier."""
        self.pools(tier, component)
        capacity = self.pages[tier][component]
        if len(pages) and (pages.min() < 0 or pages.max() >= capacity):
            raise CallerError(
                f"pages: expected 0 to {capacity - 1} of {component} on {tier.name.lower()}, "
                f"found {pages.min()} to {pages.max()}"
            )

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of a page over all pools and layers. Equal bytes give the same digest in any
        layout.

        Work on the page must have ended: this waits for no stream but torch's current one.
        """
        self.check_pages(tier, component, np.array([page]))
        digest = hashlib.sha256()
        for pool in self.pools(tier, component):
            digest.update(self._page(pool, page).data)
        return digest.digest()

    @abstractmethod
    def _taken(self, wanted: dict[str, int]) -> dict[str, int]:
        """What device pools of these bytes take of this machine's memory. Raises CallerError if
        the device has too little."""

    @abstractmethod
    def _near(self, plan: PoolPlan) -> Pool:
        """A new pool on the device."""

    @abstractmethod
    def _far(self, plan: PoolPlan, flat: Bytes, segment: int) -> Pool:
        """A pool of host memory."""

    @abstractmethod
    def _page(self, pool: Pool, number: int) -> Bytes:
        """A copy of the page's bytes in canonical order."""


class Arena(PoolTable):
    """All pools of one model on the device and host tiers of one rank, in numpy."""

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        pages: Mapping[Tier, Mapping[str, int]],
        *,
        layout: str = "page_first",
        backend: str = "kernel",
        tp: int = 1,
        registrar: Registrar | None = None,
        segment_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """pages: [tier][component], number of pages. Raises CallerError as `_allocate` does."""
        super().__init__(model, page_size, pages)
        self._backend = backend
        self._allocate(layout, backend, tp, registrar, segment_bytes)

    def copy(
        self,
        component: str,
        source: tuple[Tier, Pages],
        target: tuple[Tier, Pages],
        layers: tuple[int, int],
    ) -> None:
        """Copy model layers [first, last) of the i-th source page to the i-th target page, in every
        pool of the component."""
        here, source_pages = source
        there, target_pages = target
        move = copy_kernel if self._backend == "kernel" else copy_direct
        pairs = zip(self.pools(here, component), self.pools(there, component), strict=True)
        for read, written in pairs:
            chosen = read.plan.layers_in(*layers)
            move(read.view, source_pages, written.view, target_pages, chosen)

    def _taken(self, wanted: dict[str, int]) -> dict[str, int]:
        return wanted

    def _near(self, plan: PoolPlan) -> Pool:
        return Pool.of(plan, allocate(plan.label, plan.total_bytes))

    def _far(self, plan: PoolPlan, flat: Bytes, segment: int) -> Pool:
        return Pool.of(plan, flat, segment)

    def _page(self, pool: Pool, number: int) -> Bytes:
        return np.ascontiguousarray(pool.view[:, number])


class StoredPool:
    """The pages of one host pool. shared: every rank has the same bytes, because the one head of a
    row cannot be divided."""

    __slots__ = ("_starts", "_step", "_view", "flat", "name", "page_bytes", "run_bytes", "shared")

    def __init__(self, plan: PoolPlan, flat: Bytes) -> None:
        """flat: all memory of the pool."""
        self.name = plan.pool.name
        self.page_bytes = plan.page_bytes
        self.shared = plan.pool.replicated
        self.flat = flat.data
        self._view = canonical(flat.reshape(plan.shape), plan.layout)
        layer, self._step, *inner = self._view.strides
        steps = [layer, *inner]
        sizes = [self._view.shape[0], *self._view.shape[2:]]
        self.run_bytes = sizes.pop()
        steps.pop()
        while sizes and (steps[-1] == self.run_bytes or sizes[-1] == 1):
            self.run_bytes *= sizes.pop()
            steps.pop()
        places = product(*(range(size) for size in sizes))
        self._starts = [sum(map(int.__mul__, place, steps)) for place in places]

    def buffers(self, page: int) -> tuple[memoryview, ...]:
        """The memory of the page: its runs, in the order of the stored bytes."""
        base = page * self._step
        return tuple(
            self.flat[base + start : base + start + self.run_bytes] for start in self._starts
        )

    def save(self, page: int, target: memoryview) -> None:
        """Copy the page's bytes to a buffer."""
        page_view = self._view[:, page]
        np.copyto(np.frombuffer(target, dtype=np.uint8).reshape(page_view.shape), page_view)

    def load(self, page: int, source: memoryview) -> None:
        """Copy the page's bytes from a buffer."""
        page_view = self._view[:, page]
        np.copyto(page_view, np.frombuffer(source, dtype=np.uint8).reshape(page_view.shape))


def stored_pools(table: PoolTable) -> dict[str, tuple[StoredPool, ...]]:
    """The host pools that have bytes, by component: its own and its sidecars. Works with numpy
    arrays and with torch tensors in host memory."""
    return {
        component: tuple(
            StoredPool(pool.plan, np.asarray(pool.flat))
            for pool in table.pools(Tier.HOST, component)
            if pool.plan.page_bytes
        )
        for component in table.pages[Tier.HOST]
    }


class CopyShape(NamedTuple):
    """The shape of one pool's copies, on which their time depends beside their bytes. layers: that
    it has. pieces: contiguous on both tiers, of one page in one layer. piece_bytes: of each."""

    pool: str
    layers: int
    pieces: int
    piece_bytes: int

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
    shapes = []
    for pool in model.pools_of(component):
        near, far = (
            PoolPlan.of("any", pool, 2, page_size, side, tp) for side in (DEVICE_LAYOUT, layout)
        )
        if near.total_bytes:
            steps = [_steps(plan) for plan in (near, far)]
            sizes = [near.shape[axis] for axis in axes(DEVICE_LAYOUT)]
            pieces = pair(sizes[2:], steps[0], steps[1], min(near.run_bytes, far.run_bytes))
            shapes.append(CopyShape(pool.name, near.sizes.layer, pieces.pieces, pieces.length))
    return tuple(shapes)


def _steps(plan: PoolPlan) -> list[int]:
    """Bytes between neighbours along each dimension of the canonical view."""
    steps = np.cumprod((1, *plan.shape[:0:-1]))[::-1]
    return [int(steps[axis]) for axis in axes(plan.layout)]


def unmeasured_shapes(
    model: ModelDescription, page_size: int, layout: str, measured: Iterable[Mapping[str, Any]]
) -> tuple[CopyShape, ...]:
    """The shapes of the model's copies that no measured one is equal to, whatever their pools are
    called. measured: the fields of shapes, as in a measured profile."""
    known = {CopyShape(**fields)[1:] for fields in measured}
    return tuple(
        shape
        for component in model.components
        for shape in copy_shapes(model, component, page_size, layout)
        if shape[1:] not in known
    )


# -- sizes of a host tier, on all ranks that share the machine


def by_ratio(device_pages: Mapping[str, int], ratio: Fraction) -> dict[str, int]:
    """Host pages per component: the device's pages times the ratio, rounded down, but at least one
    page, and from a ratio of 1 on at least one page more than the device.

    A host tier of the device's size could hold no more than copies of the device's pages. Raises
    CallerError for a ratio of 0 or less.
    """
    if ratio <= 0:
        raise CallerError(f"host_ratio: expected more than 0, found {ratio}")
    more = int(ratio >= 1)
    return {
        name: max(1, more * (pages + 1), int(pages * ratio)) for name, pages in device_pages.items()
    }


def by_total(
    stages: Sequence[ModelDescription],
    page_size: int,
    device_pages: Mapping[str, int],
    total_bytes: int,
    tp: int = 1,
    among: int = 1,
) -> dict[str, int]:
    """Host pages per component, in proportion to the device's pages. The bytes of all ranks
    together are at most `total_bytes`.

    stages: one description per pipeline stage on this machine, with the layers of that stage; `tp`
    ranks have each stage. among: ranks that divide rows which they have alike; 0 for all that have
    them. Raises CallerError if the total has no room for one page of each component.
    """
    each = {
        name: tp * sum(stage.bytes_per_page(name, page_size, tp, among) for stage in stages)
        for name in device_pages
    }
    total = sum(each[name] * pages for name, pages in device_pages.items())
    least = sum(each.values())
    if total_bytes < least or not total:
        ranks = tp * len(stages)
        raise CallerError(
            f"host_bytes: expected at least one page of {' and '.join(device_pages)} on {ranks} "
            f"rank{'s' * (ranks > 1)} ({least:,} bytes), found {total_bytes} bytes; give "
            "more, or no host memory"
        )
    share = Fraction(total_bytes, total)
    pages = {name: max(1, int(count * share)) for name, count in device_pages.items()}
    # A component that was rounded up to one page takes more than its share from the others.
    while sum(each[name] * count for name, count in pages.items()) > total_bytes:
        most = max(pages, key=lambda name: (pages[name] > 1, each[name] * pages[name]))
        over = sum(each[name] * count for name, count in pages.items()) - total_bytes
        pages[most] = max(1, pages[most] - max(1, -(-over // each[most])))
    return pages
