"""The memory of all pools of a model on both tiers of one rank, in numpy.

It creates the pools and copies pages between the tiers. It does not manage the memory of one pool,
see `pools`, name or size pools, see `table`, or decide when a copy runs, see `hicache/devices`.
"""

from __future__ import annotations

from collections.abc import Mapping

from hicache.core.types import Pages, Tier
from hicache.models.base import ModelDescription, PoolDescription

from .host import room
from .layouts import Bytes, copy_direct, copy_kernel
from .pools import DevicePool, HostPool, Pool
from .segments import DEFAULT_BYTES, Registrar, try_all
from .table import PoolTable, plans_of, room_of


class Arena(PoolTable[Pool]):
    """All pools of one model on the device and host tiers of one rank."""

    __slots__ = ("_backend",)

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
        """pages: [tier][component], number of pages. layout, node, registrar, segment_bytes: for
        the host tier.

        Raises CallerError as `plans_of` does, and if there is too little memory.
        """
        plans = plans_of(model, page_size, pages, layout=layout, backend=backend, tp=tp, node=node)
        super().__init__(model, page_size, pages)
        self._backend = backend

        def new_pool(tier: Tier, pool: PoolDescription, count: int) -> Pool:
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

        try:
            with room(room_of(plans, Tier.DEVICE, Tier.HOST)):
                for place, planned in plans.items():
                    self._pools[place] = ()
                    for plan in planned:
                        self._pools[place] += (new_pool(place[0], plan.pool, plan.sizes.page),)
        except BaseException as error:
            try_all(self.close, first=error)
            raise

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

    def close(self) -> None:
        """Unregister the host pools, also those after one that fails."""
        every = (pool for pools in self._pools.values() for pool in pools)
        try_all(*(pool.close for pool in every if isinstance(pool, HostPool)))

    def _page(self, pool: Pool, number: int) -> Bytes:
        return pool.page(number)
