"""When bytes moved between the tiers, and what ran when: the data of charts, and `--timeline FILE`.

The file has Chrome trace events, which ui.perfetto.dev opens. A process is a replica. What overlaps
is in lanes of its own. Times are virtual.

    request        wait (until it was admitted), prefill (until its first token), decode
    pass           the prefill of one request, from the order to its end
    d2h, h2d, storage_read, storage_written   from the order to its end, with bytes
    kv_link        from prefill to decode replicas, with bytes
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from hicache.core.actions import Backup, Fetch, Load, Outcome, Prefill, Store
from hicache.core.events import BackupDone, Event, FetchDone, LoadDone, PrefillDone, StoreDone
from hicache.core.types import FlightId
from hicache.core.view import CoreView
from sim.engine.sequence import RequestResult
from sim.fleet.handoff import Trip

D2H, H2D, STORAGE_READ, STORAGE_WRITTEN = "d2h", "h2d", "storage_read", "storage_written"
WAYS = (D2H, H2D, STORAGE_READ, STORAGE_WRITTEN)

Flight: TypeAlias = Load | Backup | Fetch | Store


class Copies:
    """The observer of the end of every copy. page_bytes, host_bytes, value_bytes: of one page of
    each component on device, on host and in storage, on all ranks together. now_ns: the time.

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


class Slice(NamedTuple):
    name: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class Timeline(Copies):
    """The observer of one replica. rows: by kind, slices that follow each other in one lane."""

    def __init__(self, *sizes: Mapping[str, int]) -> None:
        super().__init__(*sizes)
        self.rows: dict[str, list[list[Slice]]] = {"request": [], "pass": []}
        self._begun: dict[FlightId, tuple[int, Prefill | Flight]] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        super().on_event(event, view)
        start_ns, flight = self._begun.pop(getattr(event, "flight", -1), (0, None))
        if isinstance(flight, Prefill) and isinstance(event, PrefillDone):
            args = {"request": flight.request, "tokens": flight.end_token - flight.start_token}
            self._add("pass", f"pass of {flight.request}", start_ns, args)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        super().on_outcomes(event, outcomes, view)
        for outcome in outcomes:
            if isinstance(outcome, Prefill | Flight):
                self._begun[outcome.flight] = self.now_ns(), outcome

    def _ended(self, way: str, count: int, flight: FlightId) -> None:
        super()._ended(way, count, flight)
        if count:
            self._add(way, way, self._begun[flight][0], {"bytes": count})

    def _add(self, kind: str, name: str, start_ns: int, args: dict[str, Any]) -> None:
        self.rows.setdefault(kind, []).append([Slice(name, start_ns, self.now_ns(), args)])


def timeline(
    replicas: Sequence[Timeline],
    requests: Sequence[RequestResult],
    choices: Mapping[int, int],
    trips: Mapping[int, Trip],
) -> Iterator[str]:
    """The text of the file. choices, trips: of each request, where there are several replicas."""
    rows = [{kind: [*found] for kind, found in one.rows.items()} for one in replicas]
    for one in requests:
        who, trip = {"request": one.request}, trips.get(one.request)
        wait = Slice(f"wait {one.request}", one.arrival_ns, one.admit_ns, who)
        prefill = Slice(f"prefill {one.request}", one.admit_ns, one.first_token_ns, who)
        start_ns = max(one.first_token_ns, trip.arrived_ns if trip else 0)
        decode = Slice(f"decode {one.request}", start_ns, one.finish_ns, who)
        own = rows[choices.get(one.request, 0)]["request"]
        if trip is None or trip.arrived_ns < 0:
            own.append([wait, prefill, decode])
        else:
            own.append([wait, prefill])
            there = rows[trip.decode]
            there["request"].append([decode])
            link = Slice("kv_link", trip.began_ns, trip.arrived_ns, {"bytes": trip.bytes})
            there.setdefault("kv_link", []).append([link])
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    ahead = ""
    for pid, kinds in enumerate(rows):
        for event in _events(pid, kinds):
            yield ahead + json.dumps({**event, "pid": pid})
            ahead = ",\n"
    yield "\n]}\n"


def _events(pid: int, kinds: Mapping[str, list[list[Slice]]]) -> Iterator[dict[str, Any]]:
    """The events of one process: each row in the first lane of its kind that is free."""
    yield {"ph": "M", "name": "process_name", "tid": 0, "args": {"name": f"replica {pid}"}}
    tid = 0
    for kind, rows in kinds.items():
        busy: list[tuple[int, int]] = []  # (end, tid)
        free: list[int] = []
        for row in sorted(rows, key=lambda row: row[0].start_ns):
            while busy and busy[0][0] <= row[0].start_ns:
                heappush(free, heappop(busy)[1])
            if not free:
                tid += 1
                free.append(tid)
                yield {"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": kind}}
            heappush(busy, (row[-1].end_ns, free[0]))
            lane = heappop(free)
            for name, start_ns, end_ns, args in row:
                times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}  # microseconds
                yield {"ph": "X", "name": name, "tid": lane, **times, "args": args}
