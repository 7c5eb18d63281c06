"""Every match against the brute-force reference, and what a random run came across, in numbers.

Lives here: comparison and counting. Must not live here: what to do next (`rig`), or what a match
should be (`reference`).
"""

from __future__ import annotations

from hicache.core.actions import Backup, Evicted, Load, Matched, Outcome, Seated
from hicache.core.events import Admitted, Arrived, Event, MatchWanted
from hicache.core.view import CoreView

from .reference import Expected, expected


class WrongMatch(AssertionError):
    """A match differs from the brute-force reference."""


class Score:
    def __init__(self, components: tuple[str, ...], who: str) -> None:
        self.components = components
        self.who = who
        self.counts: dict[str, int] = {}

    def before(self, event: Event, view: CoreView) -> Expected | None:
        """What the event's answer should find; the answer itself may change the tree."""
        if isinstance(event, Arrived):
            return expected(view, event.key, event.match_pages)
        if isinstance(event, MatchWanted | Admitted):
            request = view.requests[event.request]
            return expected(view, request.key, request.match_pages)
        return None

    def after(self, item: Outcome, wanted: Expected | None) -> None:
        self._count(item)
        if wanted is not None and isinstance(item, Matched | Seated):
            self._compare(item, wanted)

    def _compare(self, item: Matched | Seated, wanted: Expected) -> None:
        self._add("matches")
        more = wanted.best - wanted.device
        allowed = {more} if isinstance(item, Matched) else {0, more}
        found = (item.device_pages, item.host_pages, item.depths)
        if (found[0], found[2]) != (wanted.device, wanted.depths) or found[1] not in allowed:
            raise WrongMatch(f"{item}: expected {wanted}; {self.who}")
        if isinstance(item, Seated):
            if bool(sum(item.loaded)) != bool(item.host_pages):
                raise WrongMatch(f"{item}: loaded and host pages disagree; {self.who}")
            if item.matched != wanted.depths[0]:
                raise WrongMatch(f"{item}: expected {wanted.depths[0]} matched; {self.who}")

    def _count(self, item: Outcome) -> None:
        if isinstance(item, Evicted):
            self._add(f"evicted {item.component} {item.tier.name.lower()}", len(item.pages))
            self._add("evicted", len(item.pages))
        elif isinstance(item, Load):
            self._add("loads")
            names = {copy.component for copy in item.copies}
            self._add("loads of aux alone", self.components[0] not in names)
        elif isinstance(item, Backup):
            self._add("backups")
        elif isinstance(item, Seated):
            self._add("seated")
            self._add("hits", item.device_pages + item.host_pages > 0)

    def _add(self, name: str, count: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + count
