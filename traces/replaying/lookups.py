"""What each lookup found of every component, and which of them kept the hit from going deeper.

Lives here: an observer of admissions, one record per request (the first seating, as in account),
and its sums. Must not live here: tokens reused by tier (traces/replaying/account), or the
report's looks.

A leaf goes whole, whichever pool is short, so Full may be gone because states were: `along` counts
what an event evicted of a pool that had as much free afterwards.

A hit ends at the deepest boundary at which every component is valid. Alone, each would reach a
depth of its own; Full's is how much of the prompt is known at all:

    nothing    all of the prompt hit
    unseen     hit == depth of Full, and nothing before it in the trace shares more
    full       hit == depth of Full: what lies behind was evicted, or is still being computed
    another    hit == its depth, and all others reach deeper: its window is gone, or no state there
    together   several end there, or no boundary up to the least depth suits all, or a load was left
               out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hicache.core.actions import Admitted, Evicted, Outcome
from hicache.core.events import Arrived, Event
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView

NOTHING, UNSEEN, TOGETHER = "", "unseen", "together"


class Lookup(NamedTuple):
    """Of one request, in pages. wanted: the most that it could reuse. lost: known, or once known,
    behind the hit. cap: see the module."""

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
    """Of all lookups that one thing ended: how many, the pages that it cost, the costliest few."""

    lookups: int
    lost_pages: int
    examples: tuple[Lookup, ...]


class Lookups:
    """The observer. found: by request. most, along: device pages by component, see the module.

    ceiling: pages per request that an unbounded cache would hit.
    """

    def __init__(self, components: Sequence[str], ceiling: Pages) -> None:
        self.components = tuple(components)
        self.found: dict[int, Lookup] = {}
        self.most = [0] * len(components)
        self.along = [0] * len(components)
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
                if outcome.request not in self.found:
                    self.found[outcome.request] = self._lookup(outcome)
            elif type(outcome) is Evicted and outcome.tier == Tier.DEVICE:
                before = evicted.get(outcome.component, 0)
                evicted[outcome.component] = before + len(outcome.pages)
        for place, pool in enumerate(view.pools(Tier.DEVICE)):
            free = pool.free
            if pool.capacity - free > self.most[place]:
                self.most[place] = pool.capacity - free
            if pool.component in evicted:
                self.along[place] += min(evicted[pool.component], free)

    def alone(self) -> dict[str, int]:
        """Pages that each component alone would have reached, summed over the lookups."""
        rows = self.found.values()
        return {
            name: sum(row.depths[place] for row in rows)
            for place, name in enumerate(self.components)
        }

    def capped(self) -> dict[str, Capped]:
        """By what ended the hit."""
        groups: dict[str, list[Lookup]] = {
            name: [] for name in (NOTHING, UNSEEN, *self.components, TOGETHER)
        }
        for row in self.found.values():
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
