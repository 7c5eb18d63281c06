"""Measures what drawn sequences look like, to find generators that test too little.

A generator may be legal and fast, and find no failures because little happens in its runs. Each run
counts the values of some quantities. A report prints their quantiles and a test checks them against
wide bounds. Does not check the core or count named states (see probes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hicache.core.actions import Admitted, Outcome
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView

Readings = Counter[tuple[str, int]]

DEPTH = "depth of the tree, nodes"
NODES = "nodes"
HIT = "pages that hit, of an admitted request"
LOADED = "pages loaded, of a request that loads"
FLIGHTS = "in flight"
LOADING = "loads in flight"
DEVICE = "device pages in use, percent"
HOST = "host pages in use, percent"
QUANTITIES = (DEPTH, NODES, HIT, LOADED, FLIGHTS, LOADING, DEVICE, HOST)
LOOK_EVERY = 16  # minimum number of events between two walks over the tree
STEP = 10  # percent


class Gauges:
    """Observes one core. readings: (quantity, value) -> number of times."""

    def __init__(self) -> None:
        self.readings: Readings = Counter()
        self._events, self._look_at = 0, LOOK_EVERY

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: values are counted after the event."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        read = self.readings
        self._events += 1
        loads = sum(flight.kind == "load" for flight in view.flights.values())
        read[FLIGHTS, len(view.flights)] += 1
        read[LOADING, loads] += 1
        for item in outcomes:
            if type(item) is Admitted:
                read[HIT, item.device_pages + item.host_pages] += 1
                if any(item.loaded_pages):
                    read[LOADED, sum(item.loaded_pages)] += 1
        if self._events >= self._look_at:
            self._look(view)

    def _look(self, view: CoreView) -> None:
        depths = {view.root.id: 0}
        for node in view.nodes():
            assert node.parent is not None
            depths[node.id] = depths[node.parent.id] + 1
        self._look_at = self._events + max(LOOK_EVERY, len(depths) // 4)
        self.readings[NODES, len(depths) - 1] += 1
        self.readings[DEPTH, max(depths.values())] += 1
        for tier, name in ((Tier.DEVICE, DEVICE), (Tier.HOST, HOST)):
            pool = view.pool(tier)
            if pool.capacity:
                used = 100 * (pool.capacity - pool.free) // pool.capacity
                self.readings[name, used // STEP * STEP] += 1


def quantile(readings: Mapping[tuple[str, int], int], quantity: str, percent: int) -> int:
    """Returns the smallest value that at least `percent` of the readings do not exceed, or 0 if
    there are none.
    """
    values = sorted((value, count) for (name, value), count in readings.items() if name == quantity)
    left = -(-sum(count for _, count in values) * percent // 100)
    for value, count in values:
        left -= count
        if left <= 0:
            return value
    return 0


def per_thousand(seen: Mapping[str, int], names: Iterable[str], events: int) -> float:
    """Number of events with these names per 1,000 events."""
    return round(1000 * sum(seen.get(name, 0) for name in names) / max(1, events), 2)
