"""The table of a model's pools on each tier of one rank: which pools a page number indexes.

It has the names, sizes and plans of all pools, their lookup, checks and digests. It does not have
memory; see `arena` (numpy) and `torch_arena` (torch).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.models.base import ModelDescription

from .host import check_node
from .layouts import Bytes, check
from .pools import DEVICE_LAYOUT, PoolPlan

P = TypeVar("P")


class PoolTable(ABC, Generic[P]):
    """All pools of one model on the device and host tiers of one rank, by tier and component."""

    __slots__ = ("_pools", "model", "page_size", "pages")

    def __init__(
        self, model: ModelDescription, page_size: int, pages: Mapping[Tier, Mapping[str, int]]
    ) -> None:
        self.model = model
        self.page_size = page_size
        self.pages = {tier: dict(sizes) for tier, sizes in pages.items()}
        self._pools: dict[tuple[Tier, str], tuple[P, ...]] = {}

    def pools(self, tier: Tier, component: str) -> tuple[P, ...]:
        """The pools that the component's page numbers index on a tier: its own, then its sidecars.

        Includes empty pools. Raises CallerError for an unknown component or tier.
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
    def _page(self, pool: P, number: int) -> Bytes:
        """A copy of the page's bytes in canonical order."""


def plans_of(
    model: ModelDescription,
    page_size: int,
    pages: Mapping[Tier, Mapping[str, int]],
    *,
    layout: str,
    backend: str,
    tp: int,
    node: int | None,
) -> dict[tuple[Tier, str], tuple[PoolPlan, ...]]:
    """The plans of all pools of the model, by tier and component. layout, node: for the host tier.

    Raises CallerError for an unknown layout, backend or node, for a backend that cannot copy the
    layout, and for sizes that are negative or do not name exactly the model's components.
    """
    check(layout, backend)
    for tier, sizes in pages.items():
        if set(sizes) != set(model.components):
            raise CallerError(
                f"{tier.name.lower()} pages: expected sizes for {', '.join(model.components)}, "
                f"found {', '.join(sizes) or 'none'}"
            )
    check_node(node)
    layouts = {Tier.DEVICE: DEVICE_LAYOUT, Tier.HOST: layout}
    return {
        (tier, component): tuple(
            PoolPlan.of(tier.name.lower(), pool, count, page_size, layouts[tier], tp)
            for pool in model.pools_of(component)
        )
        for tier, sizes in pages.items()
        for component, count in sizes.items()
    }


def room_of(plans: Mapping[tuple[Tier, str], tuple[PoolPlan, ...]], *tiers: Tier) -> dict[str, int]:
    """Bytes of every pool on these tiers, by label."""
    return {
        plan.label: plan.total_bytes
        for (tier, _), planned in plans.items()
        if tier in tiers
        for plan in planned
    }
