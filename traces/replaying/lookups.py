"""What each admission matched in every component, and which component ended the hit.

An observer of admissions: one record per request, for its first admission, and sums of the records.
Does not count tokens reused by tier (see account) and does not print anything (see components).

Eviction removes whole leaves, so full attention may lose pages because states were needed.
`evicted_along` counts pages of a pool that an event evicted although the pool had as many free
pages afterwards.

A hit ends at the deepest boundary at which every component is valid. `depths` has the depth that
each component would reach alone; that of full is how much of the prompt is known at all:

    nothing    the whole prompt hit
    unseen     hit == depth of full, and no earlier request of the trace shares more
    full       hit == depth of full; the rest was evicted, or is still being computed
    another    hit == the depth of one component, and all others reach deeper: it has no
               window or no state there
    together   several components end there, or no boundary up to the least depth suits all, or a
               load was left out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Admitted, Evicted, Outcome
from hicache.core.events import Arrived, Event
from hicache.core.types import Tier
from hicache.core.view import CoreView

NOTHING, UNSEEN, TOGETHER = "", "unseen", "together"


class Lookup(NamedTuple):
    """The match of one request, in pages.

    wanted: the most that it could reuse. lost: pages after the hit that are or were known. cap:
    what ended the hit; see the module.
    """

    request: int
    wanted: int
    device: int
    host: int
    depths: tuple[int, ...]
    loaded: tuple[int, ...]
    cap: str
    lost: int

    @property
    def hit(self) -> int:
        return self.device + self.host


@dataclass(frozen=True, slots=True)
class Capped:
    """All lookups that one cause ended: their number, the pages lost, the costliest examples."""

    lookups: int
    lost_pages: int
    examples: tuple[Lookup, ...]


class Lookups:
    """The observer. ceiling: pages per request that an unbounded cache would hit.

    by_request: the lookups. peak_pages: most device pages in use, by component. evicted_along: by
    component; see the module.
    """

    def __init__(self, components: Sequence[str], ceiling: NDArray[np.int32]) -> None:
        self.components = tuple(components)
        self.by_request: dict[int, Lookup] = {}
        self.peak_pages = [0] * len(components)
        self.evicted_along = [0] * len(components)
        self._ceiling = ceiling
        self._wanted: dict[int, int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        if type(event) is Arrived:
            self._wanted[event.request] = min(event.match_pages, event.key.pages)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if not outcomes:
            return
        evicted: dict[str, int] = {}
        for outcome in outcomes:
            if type(outcome) is Admitted:
                if outcome.request not in self.by_request:
                    self.by_request[outcome.request] = self._lookup(outcome)
            elif type(outcome) is Evicted and outcome.tier == Tier.DEVICE:
                before = evicted.get(outcome.component, 0)
                evicted[outcome.component] = before + len(outcome.pages)
        for place, pool in enumerate(view.pools(Tier.DEVICE)):
            free = pool.free
            if pool.capacity - free > self.peak_pages[place]:
                self.peak_pages[place] = pool.capacity - free
            if pool.component in evicted:
                self.evicted_along[place] += min(evicted[pool.component], free)

    def alone(self) -> dict[str, int]:
        """Pages that each component alone would have reached, summed over the lookups."""
        rows = self.by_request.values()
        return {
            name: sum(row.depths[place] for row in rows)
            for place, name in enumerate(self.components)
        }

    def capped(self) -> dict[str, Capped]:
        """The lookups by what ended the hit."""
        groups: dict[str, list[Lookup]] = {
            name: [] for name in (NOTHING, UNSEEN, *self.components, TOGETHER)
        }
        for row in self.by_request.values():
            groups[row.cap].append(row)
        return {
            cap: Capped(
                len(rows),
                sum(row.lost for row in rows),
                tuple(sorted(rows, key=lambda row: (-row.lost, row.request))[:3]),
            )
            for cap, rows in groups.items()
        }

    def _lookup(self, admitted: Admitted) -> Lookup:
        wanted = self._wanted.pop(admitted.request, admitted.matched_pages)
        hit = admitted.device_pages + admitted.host_pages
        depths = admitted.depths
        lost = depths[0] - hit
        if hit >= wanted:
            cap = NOTHING
        elif hit >= depths[0]:
            lost = max(0, int(self._ceiling[admitted.request]) - hit)
            cap = self.components[0] if lost else UNSEEN
        elif hit < min(depths) or depths.count(min(depths)) > 1:
            cap = TOGETHER
        else:
            cap = self.components[depths.index(min(depths))]
        return Lookup(
            admitted.request,
            wanted,
            admitted.device_pages,
            admitted.host_pages,
            depths,
            admitted.loaded_pages,
            cap,
            lost,
        )
