"""What the peer of this project's own core reads: who holds which page."""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.core.radix.node import FlightKind
from hicache.core.types import Tier
from invariants.fuzz.target import Holding, PoolState


def pools_of(core: Any) -> list[PoolState]:
    """The pools of a core, with the holders of every page."""
    view = core.view
    return [
        _pool(view, tier, at)
        for tier in (Tier.DEVICE, Tier.HOST)
        for at in range(len(view.components))
        if view.pool(tier, at).capacity
    ]


def _pool(view: Any, tier: Tier, at: int) -> PoolState:
    pool = view.pool(tier, at)
    cached = [node.pages[tier][at] for node in view.nodes() if node.pages[tier][at] is not None]
    held = [Holding("cache", np.concatenate(cached))] if cached else []
    if tier == Tier.DEVICE:
        held += [Holding(f"request {one.id}", _own(view, one, at)) for one in _running(view)]
    held += [Holding(f"flight {one.id}", _targets(one, tier, at)) for one in view.flights.values()]
    counted, protected = pool.counts[2], pool.protected
    free = pool.free + pool.counts[4]  # retiring pages come back with their last loan
    name = f"{('device', 'host')[tier]} {view.config.components[at]}"
    return PoolState(name, 1, pool.capacity, free, held, counted=counted, protected=protected)


def _running(view: Any) -> list[Any]:
    return [one for one in view.requests.values() if one.admitted]


def _own(view: Any, request: Any, at: int) -> Any:
    table = request.tables[at]
    own = table[request.shared_pages :] if view.components[at].positional else table
    return own[own >= 0]


def _targets(flight: Any, tier: Tier, at: int) -> Any:
    """The pages that a transfer fills, which nobody else holds yet."""
    filled = Tier.DEVICE if flight.kind == FlightKind.LOAD else Tier.HOST
    legs = flight.legs if filled == tier else ()
    pages = [leg.target for leg in legs if leg.component == at]
    return np.concatenate([np.zeros(0, np.int64), *pages])
