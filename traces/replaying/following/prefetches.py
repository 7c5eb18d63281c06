"""An observer that counts what prefetches and stores did, and how each prefetch ended.

Does not say which requests hit what they brought (see account), or read a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache.core.actions import Lookup, Outcome, Prefetched, Store
from hicache.core.events import Event
from hicache.core.view import CoreView

WHOLE = "complete"  # the reason of a prefetch that brought all it asked for


@dataclass(slots=True)
class Ended:
    """Prefetches that ended for one reason: requests, and pages asked for, found and fetched."""

    requests: int = 0
    asked_pages: int = 0
    found_pages: int = 0
    fetched_pages: int = 0


class Prefetches:
    """begun: lookups. ended: by reason. last: by request, how its prefetch ended. stores: how many
    were begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: dict[str, Ended] = {}
        self.last: dict[int, Prefetched] = {}
        self.stores = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        """Counts nothing: an event counts together with its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Lookup:
                self.begun += 1
            elif kind is Store:
                self.stores += 1
            elif kind is Prefetched:
                assert isinstance(outcome, Prefetched)
                self._ended(outcome)

    def fetched(self, request: int) -> tuple[int, int]:
        """The first page of a request's prefetch, and how many pages it brought."""
        told = self.last.get(request)
        return (told.first_page, told.fetched_pages) if told is not None else (0, 0)

    def _ended(self, told: Prefetched) -> None:
        self.last[told.request] = told
        found = self.ended.setdefault(told.reason or WHOLE, Ended())
        found.requests += 1
        found.asked_pages += told.asked_pages
        found.found_pages += told.found_pages
        found.fetched_pages += told.fetched_pages
