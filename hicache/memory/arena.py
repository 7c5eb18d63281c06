"""The bytes of every pool on every tier: one numpy buffer per (pool, tier), indexed by page.

Lives here: allocation, page copies between two tiers, fills and digests. Must not live here: who
owns a page (the core's ledger knows), when a copy runs (devices), threads.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.models.base import ModelDescription, PoolDescription

from .layouts import Bytes, canonical, check, copy_direct, copy_kernel, shape

DEVICE_LAYOUT = "layer_first"


class Slab(NamedTuple):
    """One pool on one tier. `flat` and `view` (canonical order, see layouts) share their memory."""

    pool: PoolDescription
    flat: Bytes
    view: Bytes

    def layers_in(self, first: int, last: int) -> range:
        """The pool's own layer indices among the model's layers first..last-1."""
        return range(bisect_left(self.pool.layers, first), bisect_left(self.pool.layers, last))


class Arena:
    """All pools of one model on the device and host tiers of one rank."""

    __slots__ = ("_backend", "_slabs", "model", "page_size", "pages")

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        pages: Mapping[Tier, Mapping[str, int]],
        *,
        layout: str = "page_first",
        backend: str = "kernel",
        tp: int = 1,
    ) -> None:
        """pages: per tier and component. layout: of the host tier; the device is layer_first.

        Raises CallerError for an unknown layout or backend, for a pair of them that cannot work,
        for sizes that do not name the model's components, and where memory cannot be had.
        """
        check(layout, backend)
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}")
        self.model = model
        self.page_size = page_size
        self.pages = {tier: dict(sizes) for tier, sizes in pages.items()}
        self._backend = backend
        self._slabs: dict[tuple[Tier, str], tuple[Slab, ...]] = {}
        for tier, sizes in self.pages.items():
            if set(sizes) != set(model.components):
                raise CallerError(
                    f"{tier.name.lower()} pages: expected sizes for {', '.join(model.components)}, "
                    f"found {', '.join(sizes) or 'none'}"
                )
            order = DEVICE_LAYOUT if tier is Tier.DEVICE else layout
            for component, count in sizes.items():
                self._slabs[tier, component] = tuple(
                    _allocate(pool, tier, count, page_size, order, tp)
                    for pool in model.pools_of(component)
                )

    def slabs(self, tier: Tier, component: str) -> tuple[Slab, ...]:
        """The component's pools on a tier, its own first. Raises CallerError if there are none."""
        found = self._slabs.get((tier, component))
        if found is None:
            known = ", ".join(f"{name} on {at.name.lower()}" for at, name in self._slabs)
            raise CallerError(
                f"pool: expected one of {known}, found {component} on {tier.name.lower()}"
            )
        return found

    def check_pages(self, tier: Tier, component: str, pages: Pages) -> None:
        """Raises CallerError for a page number outside the component's pools on the tier."""
        self.slabs(tier, component)
        capacity = self.pages[tier][component]
        if len(pages) and (pages.min() < 0 or pages.max() >= capacity):
            raise CallerError(
                f"pages: expected 0 to {capacity - 1} of {component} on {tier.name.lower()}, "
                f"found {pages.min()} to {pages.max()}"
            )

    def copy(
        self,
        component: str,
        source: tuple[Tier, Pages],
        target: tuple[Tier, Pages],
        layers: tuple[int, int],
    ) -> None:
        """Copy model layers [first, last) of pages, page i to page i, in every pool."""
        here, source_pages = source
        there, target_pages = target
        pairs = zip(self.slabs(here, component), self.slabs(there, component), strict=True)
        for read, written in pairs:
            chosen = read.layers_in(*layers)
            if self._backend == "kernel":
                copy_kernel(read.view, source_pages, written.view, target_pages, chosen)
            else:
                copy_direct(
                    read.view,
                    read.flat,
                    source_pages,
                    written.view,
                    written.flat,
                    target_pages,
                    chosen,
                )

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of a page over all pools and layers, equal for equal bytes in any layout."""
        self.check_pages(tier, component, np.array([page]))
        digest = hashlib.sha256()
        for slab in self.slabs(tier, component):
            digest.update(np.ascontiguousarray(slab.view[:, page]).data)
        return digest.digest()


def _allocate(
    pool: PoolDescription, tier: Tier, pages: int, page_size: int, layout: str, tp: int
) -> Slab:
    if pages < 0:
        raise CallerError(f"{tier.name.lower()} pages: expected 0 or more, found {pages}")
    row = pool.row_bytes(tp)
    dims = shape(layout, len(pool.layers), pages, len(pool.parts), page_size)
    try:
        buffer = np.zeros((*dims, row), dtype=np.uint8)
    except (MemoryError, ValueError):
        wanted = pages * page_size * pool.token_bytes(tp)
        raise CallerError(
            f"{tier.name.lower()} pool {pool.name}: expected room for {pages} pages of "
            f"{page_size * pool.token_bytes(tp)} bytes, {wanted} in all, and the system refused; "
            f"ask for fewer pages"
        ) from None
    return Slab(pool, buffer.reshape(-1), canonical(buffer, layout))
