"""A watch that also compares every match with brute force over the tree (`reference`).

Lives here: comparison and counting. Must not live here: what a match should be. MATCH-REF compares
with the books, which know of the tree only what events said; this one reads the tree itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Admitted, Matched, Outcome
from hicache.core.events import AdmitWanted, Arrived, Event, MatchWanted
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.watch import Watch

from .reference import Expected, expected


class WrongMatch(AssertionError):
    """A match differs from the brute-force reference."""


class Matches(Watch):
    """compared: matches so far."""

    def __init__(self, who: str, checks: Sequence[Check] | None = None) -> None:
        super().__init__("every", who, checks)
        self.compared = 0
        self._wanted: Expected | None = None

    def on_event(self, event: Event, view: CoreView) -> None:
        """The answer itself may change the tree, so it is looked at before."""
        self._wanted = None
        if isinstance(event, Arrived):
            self._wanted = expected(view, event.key, event.match_pages)
        elif isinstance(event, MatchWanted | AdmitWanted):
            request = view.requests[event.request]
            self._wanted = expected(view, request.key, request.match_pages)
        super().on_event(event, view)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self._wanted is not None:
            for item in outcomes:
                if isinstance(item, Matched | Admitted):
                    self._compare(item, self._wanted)
        super().on_outcomes(event, outcomes, view)

    def _compare(self, item: Matched | Admitted, wanted: Expected) -> None:
        self.compared += 1
        more = wanted.best - wanted.device
        allowed = {more} if isinstance(item, Matched) else {0, more}
        found = (item.device_pages, item.host_pages, item.depths)
        if (found[0], found[2]) != (wanted.device, wanted.depths) or found[1] not in allowed:
            raise WrongMatch(f"{item}: expected {wanted}; {self.replay_command}")
        if isinstance(item, Admitted):
            if bool(sum(item.loaded_pages)) != bool(item.host_pages):
                raise WrongMatch(f"{item}: loaded and host pages disagree; {self.replay_command}")
            if item.matched_pages != wanted.depths[0]:
                raise WrongMatch(
                    f"{item}: expected {wanted.depths[0]} matched; {self.replay_command}"
                )
