"""What each lookup found of every component, and which of them kept the hit from going deeper.

Lives here: an observer of admissions, one record per request (the first seating, as in account),
and its sums. Must not live here: tokens reused by tier (traces/account), or the report's looks.

A hit ends at the deepest boundary at which every component is valid. Alone, each would reach a
depth of its own; Full's is how much of the prompt is known at all:

    nothing    all of the prompt hit
    full       hit == depth of Full: what lies behind is not known, or was evicted
    another    hit == the least depth, and Full knows more: its window is gone, or no state is there
    together   hit < the least depth: no boundary up to there suits all, or a load was left out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hicache.core.actions import Outcome, Seated
from hicache.core.events import Arrived, Event
from hicache.core.view import CoreView

NOTHING, TOGETHER = "", "together"


class Lookup(NamedTuple):
    """Of one request, in pages. wanted: the most that it could reuse. cap: see the module."""

    request: int
    wanted: int
    device: int
    host: int
    depths: tuple[int, ...]
    loaded: tuple[int, ...]
    cap: str

    @property
    def hit(self) -> int:
        return self.device + self.host


@dataclass(frozen=True, slots=True)
class Capped:
    """Of all lookups that one component ended: how many, pages of Full known behind the hit that
    it cost, and the costliest few."""

    lookups: int
    lost_pages: int
    examples: tuple[Lookup, ...]


class Lookups:
    """The observer. found: by request."""

    def __init__(self, components: Sequence[str]) -> None:
        self.components = tuple(components)
        self.found: dict[int, Lookup] = {}
        self._wanted: dict[int, int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        if isinstance(event, Arrived):
            self._wanted[event.request] = min(event.match_pages, event.key.pages)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Seated) and outcome.request not in self.found:
                self.found[outcome.request] = self._lookup(outcome)

    def alone(self) -> dict[str, int]:
        """Pages that each component alone would have reached, summed over the lookups."""
        rows = self.found.values()
        return {
            name: sum(row.depths[place] for row in rows)
            for place, name in enumerate(self.components)
        }

    def capped(self) -> dict[str, Capped]:
        """By what ended the hit, in order of components, then together, then nothing."""
        groups: dict[str, list[Lookup]] = {
            name: [] for name in (*self.components, TOGETHER, NOTHING)
        }
        for row in self.found.values():
            groups[row.cap].append(row)
        return {
            cap: Capped(
                len(rows),
                sum(row.depths[0] - row.hit for row in rows),
                tuple(sorted(rows, key=lambda row: (row.hit - row.depths[0], row.request))[:3]),
            )
            for cap, rows in groups.items()
        }

    def _lookup(self, seated: Seated) -> Lookup:
        wanted = self._wanted.pop(seated.request, seated.matched)
        hit = seated.device_pages + seated.host_pages
        depths = seated.depths
        if hit >= wanted:
            cap = NOTHING
        elif hit >= depths[0]:
            cap = self.components[0]
        elif hit >= min(depths):
            cap = self.components[min(range(len(depths)), key=depths.__getitem__)]
        else:
            cap = TOGETHER
        return Lookup(
            seated.request,
            wanted,
            seated.device_pages,
            seated.host_pages,
            depths,
            seated.loaded,
            cap,
        )
