"""`hicache replay --timeline FILE`: the replay as Chrome trace events, which ui.perfetto.dev opens.

A process is a replica. What overlaps is in lanes of its own. Times are virtual.

    request        wait (until it was admitted), prefill (until its first token), decode
    pass           the prefill of one request, from the order to its end
    d2h, h2d, storage_read, storage_written   from the order to its end, with bytes
    kv_link        from prefill to decode replicas, with bytes
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from hicache.core.actions import Outcome, Prefill
from hicache.core.events import Event, PrefillDone
from hicache.core.types import FlightId
from hicache.core.view import CoreView
from sim.engine.sequence import RequestResult
from sim.fleet.handoff import Trip

from .copies import Copies, Flight


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
