"""The bytes of every pool of a model on both tiers of one rank, found by (tier, component).

Lives here: which pools follow which page numbers, page copies between two tiers, digests. Must not
live here: one pool's memory (pools), who owns a page (the core's ledger knows), when a copy runs
(devices), threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.models.base import ModelDescription, PoolDescription

from .host import check_node, check_room
from .layouts import check, copy_direct, copy_kernel
from .pools import DEVICE_LAYOUT, DevicePool, HostPool, Pool, PoolPlan
from .segments import DEFAULT_BYTES, Registrar

__all__ = ["DEVICE_LAYOUT", "Arena", "check_sizes"]


def check_sizes(model: ModelDescription, pages: Mapping[Tier, Mapping[str, int]]) -> None:
    """Raises CallerError unless each tier's sizes name exactly the model's components."""
    for tier, sizes in pages.items():
        if set(sizes) != set(model.components):
            raise CallerError(
                f"{tier.name.lower()} pages: expected sizes for {', '.join(model.components)}, "
                f"found {', '.join(sizes) or 'none'}"
            )


class Arena:
    """All pools of one model on the device and host tiers of one rank."""

    __slots__ = ("_backend", "_pools", "model", "page_size", "pages")

    def __init__(
        self,
        model: ModelDescription,
        page_size: int,
        pages: Mapping[Tier, Mapping[str, int]],
        *,
        layout: str = "page_first",
        backend: str = "kernel",
        tp: int = 1,
        node: int | None = None,
        registrar: Registrar | None = None,
        segment_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """pages: per tier and component. layout, node, registrar, segment_bytes: of the host tier.

        Raises CallerError for an unknown layout or backend, for a pair of them that cannot work,
        for sizes that do not name the model's components, and where memory cannot be had.
        """
        check(layout, backend)
        check_sizes(model, pages)
        check_node(node)
        self.model = model
        self.page_size = page_size
        self.pages = {tier: dict(sizes) for tier, sizes in pages.items()}
        self._backend = backend
        plans = [
            PoolPlan.of(
                tier.name.lower(),
                pool,
                count,
                page_size,
                DEVICE_LAYOUT if tier is Tier.DEVICE else layout,
                tp,
            )
            for tier, sizes in self.pages.items()
            for component, count in sizes.items()
            for pool in model.pools_of(component)
        ]
        check_room({plan.label: plan.total_bytes for plan in plans})

        def made(tier: Tier, pool: PoolDescription, count: int) -> Pool:
            if tier is Tier.DEVICE:
                return DevicePool(pool, count, page_size, tp=tp)
            return HostPool(
                pool,
                count,
                page_size,
                layout,
                tp=tp,
                node=node,
                registrar=registrar,
                segment_bytes=segment_bytes,
            )

        self._pools: dict[tuple[Tier, str], tuple[Pool, ...]] = {}
        try:
            for tier, sizes in self.pages.items():
                for component, count in sizes.items():
                    key = (tier, component)
                    self._pools[key] = ()
                    for pool in model.pools_of(component):
                        self._pools[key] += (made(tier, pool, count),)
        except BaseException:
            self.close()
            raise

    def pools(self, tier: Tier, component: str) -> tuple[Pool, ...]:
        """The pools that the component's page numbers index on a tier, its own before sidecars.

        A pool without bytes is among them and empty. Raises CallerError if there are none.
        """
        found = self._pools.get((tier, component))
        if found is None:
            known = ", ".join(f"{name} on {at.name.lower()}" for at, name in self._pools)
            raise CallerError(
                f"pool: expected one of {known}, found {component} on {tier.name.lower()}"
            )
        return found

    def check_pages(self, tier: Tier, component: str, pages: Pages) -> None:
        """Raises CallerError for a page number outside the component's pools on the tier."""
        self.pools(tier, component)
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
        move = copy_kernel if self._backend == "kernel" else copy_direct
        pairs = zip(self.pools(here, component), self.pools(there, component), strict=True)
        for read, written in pairs:
            chosen = read.plan.layers_in(*layers)
            move(read.view, source_pages, written.view, target_pages, chosen)

    def digest(self, tier: Tier, component: str, page: int) -> bytes:
        """SHA-256 of a page over all pools and layers, equal for equal bytes in any layout."""
        self.check_pages(tier, component, np.array([page]))
        digest = hashlib.sha256()
        for pool in self.pools(tier, component):
            digest.update(pool.page(page).data)
        return digest.digest()

    def close(self) -> None:
        """Unregister the host pools."""
        for pools in self._pools.values():
            for pool in pools:
                if isinstance(pool, HostPool):
                    pool.close()
