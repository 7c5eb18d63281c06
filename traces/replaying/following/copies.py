"""When bytes moved between the tiers: an observer that notes the end of every copy.

Does not sum the run (see tally, and sim/storage for storage) or divide time into buckets.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from hicache.core.actions import Backup, Fetch, Load, Outcome, Store
from hicache.core.events import BackupDone, Event, FetchDone, LoadDone, StoreDone
from hicache.core.types import FlightId
from hicache.core.view import CoreView

D2H, H2D, STORAGE_READ, STORAGE_WRITTEN = "d2h", "h2d", "storage_read", "storage_written"
WAYS = (D2H, H2D, STORAGE_READ, STORAGE_WRITTEN)

Flight: TypeAlias = Load | Backup | Fetch | Store


class Copies:
    """The observer. page_bytes, host_bytes, value_bytes: of one page of each component on device,
    on host and in storage, on all ranks together. now_ns: the time.

    times_ns, bytes: by way, one entry for each copy that ended, in order.
    """

    def __init__(
        self,
        page_bytes: Mapping[str, int],
        host_bytes: Mapping[str, int],
        value_bytes: Mapping[str, int],
    ) -> None:
        self.now_ns: Callable[[], int] = lambda: 0
        self.times_ns = {way: array("q") for way in WAYS}
        self.bytes = {way: array("q") for way in WAYS}
        self._copied_bytes = {H2D: page_bytes, D2H: host_bytes}
        self._value_bytes = value_bytes
        self._flights: dict[FlightId, Flight] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        if not isinstance(event, LoadDone | BackupDone | FetchDone | StoreDone):
            return
        flight = self._flights.pop(event.flight, None)
        if isinstance(flight, Load | Backup) and isinstance(event, LoadDone | BackupDone):
            if event.ok:
                way = H2D if isinstance(flight, Load) else D2H
                self._ended(way, self._copied(flight, self._copied_bytes[way]), event.flight)
        elif isinstance(flight, Fetch) and isinstance(event, FetchDone):
            self._ended(STORAGE_READ, self._fetched(flight, event.pages), event.flight)
        elif isinstance(flight, Store) and isinstance(event, StoreDone):
            self._ended(STORAGE_WRITTEN, self._stored(flight, event.pages), event.flight)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Load | Backup | Fetch | Store):
                self._flights[outcome.flight] = outcome

    def _ended(self, way: str, count: int, flight: FlightId) -> None:
        if count:
            self.times_ns[way].append(self.now_ns())
            self.bytes[way].append(count)

    def _copied(self, flight: Load | Backup, sizes: Mapping[str, int]) -> int:
        return sum(len(copy.target) * sizes[copy.component] for copy in flight.copies)

    def _fetched(self, flight: Fetch, pages: int) -> int:
        end = flight.first_page + pages
        return sum(
            max(0, min(len(piece.digests), end - piece.first_page))
            * self._value_bytes[piece.component]
            for piece in flight.pieces
        )

    def _stored(self, flight: Store, pages: int) -> int:
        found, left = 0, pages
        for piece in flight.pieces:
            durable = min(left, len(piece.digests))
            found += durable * self._value_bytes[piece.component]
            left -= durable
        return found
