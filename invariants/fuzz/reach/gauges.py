"""Measures what drawn sequences look like, to find generators that test too little.

A generator may be legal and fast, and find no failures because little happens in its runs. Each run
counts the values of some quantities. A report prints their quantiles and a test checks them against
wide bounds. Does not check the core or count named states (see probes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hicache.core.actions import Admitted, Outcome
from hicache.core.config import Config
from hicache.core.events import Arrived, Event
from hicache.core.types import Tier
from hicache.core.view import CoreView

from ..configs import least_device_pages
from ..records import LEAST_MADE_UP

Readings = Counter[tuple[str, int]]

DEPTH = "depth of the tree, nodes"
NODES = "nodes"
HIT = "pages that hit, of an admitted request"
LOADED = "pages loaded, of a request that loads"
LENGTH = "pages of a prompt"
FLIGHTS = "in flight"
LOADING = "loads in flight"
DEVICE = "device pages in use, percent"
HOST = "host pages in use, percent"
MOST_NODES = "most nodes, of a sequence"
EVENTS = "events, of a sequence"
SEATED = "requests seated, of a sequence"
HITTING = "of those with a hit, percent"
QUANTITIES = (
    *(DEPTH, NODES, LENGTH, HIT, LOADED, FLIGHTS, LOADING, DEVICE, HOST),
    *(MOST_NODES, EVENTS, SEATED, HITTING),
)
LEAST_DEVICE = "every device pool at its legal minimum"
SOME_LEAST = "some device pool at its legal minimum"
NO_HOST = "no host pool"
ONE_PAGE_HOST = "a host pool of one page"
SHARES = (LEAST_DEVICE, SOME_LEAST, NO_HOST, ONE_PAGE_HOST)
LOOK_EVERY = 16  # minimum number of events between two walks over the tree
STEP = 10  # percent


class Gauges:
    """Observes one core. readings: (quantity, value) -> number of times. Those of a sequence are
    added by `end`. Prompts and hits are those of drawn requests, not those that faults made.
    """

    def __init__(self, config: Config) -> None:
        self.readings: Readings = Counter()
        self._config = config
        self._events, self._look_at = 0, LOOK_EVERY
        self._nodes = self._seated = self._hitting = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: values are counted after the event."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        read = self.readings
        self._events += 1
        loads = sum(flight.kind == "load" for flight in view.flights.values())
        read[FLIGHTS, len(view.flights)] += 1
        read[LOADING, loads] += 1
        if type(event) is Arrived and event.request < LEAST_MADE_UP:
            read[LENGTH, -(-event.length // self._config.page_size)] += 1
        for item in outcomes:
            if type(item) is Admitted and item.request < LEAST_MADE_UP:
                read[HIT, item.device_pages + item.host_pages] += 1
                self._seated += 1
                self._hitting += item.device_pages + item.host_pages > 0
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
        self._nodes = max(self._nodes, len(depths) - 1)
        self.readings[DEPTH, max(depths.values())] += 1
        for tier, name in ((Tier.DEVICE, DEVICE), (Tier.HOST, HOST)):
            pool = view.pool(tier)
            if pool.capacity:
                used = 100 * (pool.capacity - pool.free) // pool.capacity
                self.readings[name, used // STEP * STEP] += 1

    def end(self) -> None:
        """Adds the readings of the whole sequence."""
        read, config = self.readings, self._config
        read[MOST_NODES, self._nodes] += 1
        read[EVENTS, self._events] += 1
        read[SEATED, self._seated] += 1
        if self._seated:
            read[HITTING, 100 * self._hitting // self._seated] += 1
        least = [
            pages == least
            for pages, least in zip(config.device_pages, least_device_pages(config), strict=True)
        ]
        read[LEAST_DEVICE, all(least)] += 1
        read[SOME_LEAST, any(least)] += 1
        read[NO_HOST, not config.has_host] += 1
        read[ONE_PAGE_HOST, 1 in config.host_pages] += 1


def share(readings: Mapping[tuple[str, int], int], name: str) -> float:
    """Returns the percentage of sequences of which this is true."""
    sequences = readings.get((name, 0), 0) + readings.get((name, 1), 0)
    return round(100 * readings.get((name, 1), 0) / max(1, sequences), 1)


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
