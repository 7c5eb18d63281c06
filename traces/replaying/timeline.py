"""What ran when: `--timeline FILE`, Chrome trace events, which ui.perfetto.dev opens.

A process is a replica. What overlaps is in transfer queues of its own. Times are virtual.

    request        wait (until it was admitted), prefill (until its first token), decode
    pass           the prefill of one request, from the order to its end
    d2h, h2d, storage_read, storage_written   from the order to its end, with pages
    kv_link        from prefill to decode replicas, with bytes
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from hicache.core.actions import Backup, Fetch, Load, Outcome, Prefill, Store
from hicache.core.events import BackupDone, Event, FetchDone, LoadDone, PrefillDone, StoreDone
from hicache.core.types import TransferId
from hicache.core.view import CoreView
from sim.engine.sequence import RequestResult
from sim.fleet import Trip

_WAYS = {Load: "h2d", Backup: "d2h", Fetch: "storage_read", Store: "storage_written"}


class Slice(NamedTuple):
    name: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class Timeline:
    """The observer of one replica. now_ns: the time. rows: by kind, slices that follow each other
    in one transfer queue."""

    def __init__(self) -> None:
        self.now_ns: Callable[[], int] = lambda: 0
        self.rows: dict[str, list[list[Slice]]] = {"request": [], "pass": []}
        self._begun: dict[TransferId, tuple[int, Prefill | Load | Backup | Fetch | Store]] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        ends = LoadDone | BackupDone | FetchDone | StoreDone | PrefillDone
        if not isinstance(event, ends) or event.transfer not in self._begun:
            return
        start_ns, transfer = self._begun.pop(event.transfer)
        if isinstance(transfer, Prefill):
            args = {
                "request": transfer.request,
                "tokens": transfer.end_token - transfer.start_token,
            }
            kind, name, done = "pass", f"pass of {transfer.request}", True
        else:
            kind = name = _WAYS[type(transfer)]
            args = {"pages": _pages(transfer)}
            done = bool(event.pages if isinstance(event, FetchDone | StoreDone) else True)
            done = event.ok if isinstance(event, LoadDone | BackupDone) else done
        if done:
            slices = [Slice(name, start_ns, self.now_ns(), args)]
            self.rows.setdefault(kind, []).append(slices)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Prefill | Load | Backup | Fetch | Store):
                self._begun[outcome.transfer] = self.now_ns(), outcome


def _pages(transfer: Load | Backup | Fetch | Store) -> int:
    if isinstance(transfer, Load | Backup):
        return sum(len(copy.target) for copy in transfer.copies)
    return sum(len(piece.digests) for piece in transfer.pieces)


def timeline(
    replicas: Sequence[Timeline],
    requests: Sequence[RequestResult],
    choices: Mapping[int, int],
    trips: Mapping[int, Trip],
) -> Iterator[str]:
    """The text of the file. choices, trips: of each request, where there are several replicas."""
    rows = [{kind: [*slices] for kind, slices in replica.rows.items()} for replica in replicas]
    for request in requests:
        who, trip = {"request": request.request}, trips.get(request.request)
        wait = Slice(f"wait {request.request}", request.arrival_ns, request.admit_ns, who)
        prefill = Slice(f"prefill {request.request}", request.admit_ns, request.first_token_ns, who)
        start_ns = max(request.first_token_ns, trip.arrived_ns if trip else 0)
        decode = Slice(f"decode {request.request}", start_ns, request.finish_ns, who)
        own = rows[choices.get(request.request, 0)]["request"]
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
    """The events of one process: each row in the first transfer queue of its kind that is free."""
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
            track = heappop(free)
            for name, start_ns, end_ns, args in row:
                times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}  # microseconds
                yield {"ph": "X", "name": name, "tid": track, **times, "args": args}
