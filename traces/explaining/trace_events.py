"""Slices of a timeline as Chrome trace events: their threads and their order.

Slices of one thread are nested or follow each other (in the first process they only follow). A
slice that would overlap another one gets another lane. Does not define slices; see timeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from hicache.core.types import Tier

REPLAY, REQUESTS, LOCKS, POOLS = range(1, 5)
PROCESSES = ("replay", "requests", "locks", "pools")
FAILURE, ENTRIES, EVENTS = "failure", "entries", "events"
LOADS, BACKUPS, REQUEST, NODE = "loads", "backups", "request", "node"
STAGES = WAITS, ADMITTED, DECODES = ("waits", "admitted", "decodes")
LEFT = {tier: f"evictions from {tier.name.lower()}" for tier in (Tier.DEVICE, Tier.HOST)}
ROWS = (FAILURE, ENTRIES, EVENTS, LOADS, BACKUPS, *LEFT.values(), REQUEST, NODE)
TIDS = 1000  # thread ids of one process; viewers show the id after the name of a row

Row = tuple[int, str, int]  # process, kind, and number (-1 if there is only one)


@dataclass(eq=False)
class Slice:
    """end: -1 while it is open. reads: flights of the loads that a pass reads."""

    row: Row
    start: int
    name: str
    args: dict[str, Any]
    end: float = -1
    reads: tuple[int, ...] = ()
    thread: int = 0


def counter(pid: int, name: str, time: int, args: dict[str, int]) -> dict[str, Any]:
    """Values that hold from `time` on."""
    return {"ph": "C", "name": name, "ts": time, "pid": pid, "tid": 0, "args": args}


def as_events(
    slices: Sequence[Slice], flights: dict[int, Slice], counters: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """All events of the file: the names of processes and threads, then the rest in time order.

    flights: by number, the loads that a slice may name in `reads`.
    """
    threads = _lanes(slices)
    events = [*_arranged(slices, flights, threads), *counters]
    return [*_names(threads), *sorted(events, key=lambda event: float(event["ts"]))]


def _lanes(slices: Sequence[Slice]) -> dict[Row, list[int]]:
    """The threads of each row.

    A slice goes to the first lane in which it is nested in another slice or follows all of them.
    """
    rows: dict[Row, list[Slice]] = defaultdict(list)
    for one in slices:
        rows[one.row].append(one)
    threads: dict[Row, list[int]] = {}
    numbers = [count(pid * TIDS) for pid in range(POOLS + 1)]
    for row in sorted(rows, key=lambda row: (row[0], ROWS.index(row[1]), row[2])):
        lanes: list[list[float]] = []  # the ends of the open slices of each lane, innermost last
        for one in sorted(rows[row], key=_outer):
            for lane in lanes:
                while lane and lane[-1] <= one.start:
                    lane.pop()
            nests = row[0] != REPLAY
            fits = (
                at for at, lane in enumerate(lanes) if not lane or (nests and one.end <= lane[-1])
            )
            one.thread = next(fits, len(lanes))
            if one.thread == len(lanes):
                lanes.append([])
            lanes[one.thread].append(one.end)
        threads[row] = [next(numbers[row[0]]) for _ in lanes]
    return threads


def _names(threads: dict[Row, list[int]]) -> Iterator[dict[str, Any]]:
    """Metadata events: the name and position of every process and thread."""
    for pid, name in enumerate(PROCESSES, 1):
        yield _about("process", pid, 0, "name", name)
        yield _about("process", pid, 0, "sort_index", pid)
    for (pid, what, number), tids in threads.items():
        name = f"{what} {number}" if number >= 0 else what
        for lane, tid in enumerate(tids, 1):
            yield _about("thread", pid, tid, "name", name if lane == 1 else f"{name}, lane {lane}")
            yield _about("thread", pid, tid, "sort_index", tid)


def _about(kind: str, pid: int, tid: int, what: str, value: str | int) -> dict[str, Any]:
    named_ = {"ph": "M", "name": f"{kind}_{what}", "pid": pid, "tid": tid}
    return {**named_, "args": {what: value}}


def _arranged(
    slices: Sequence[Slice], flights: dict[int, Slice], threads: dict[Row, list[int]]
) -> Iterator[dict[str, Any]]:
    """The events of slices and arrows.

    Of two slices that begin together the longer one comes first. The two ends of an arrow have one
    number (viewers accept no text), and follow their slices.
    """
    events: dict[Slice, list[dict[str, Any]]] = {}
    for one in sorted(slices, key=_outer):
        complete = {"ph": "X", "name": one.name, "cat": PROCESSES[one.row[0] - 1]}
        length = {"dur": one.end - one.start, "args": one.args}
        events[one] = [{**complete, **_where(one, threads), **length}]
    arrows = count(1)
    for one in slices:
        for source in (flights[load] for load in one.reads if load in flights):
            arrow = {"cat": "read", "name": "is read by", "id": next(arrows)}
            events[source].append({"ph": "s", **arrow, **_where(source, threads)})
            events[one].append({"ph": "f", "bp": "e", **arrow, **_where(one, threads)})
    return chain.from_iterable(events.values())


def _outer(one: Slice) -> tuple[float, int, bool, float]:
    """The sort key of slices: by beginning, then the containing slice before the contained one.

    A load comes before the pass that reads it, because viewers drop an arrow that ends before it
    begins. A stage comes before a pass that outlasts it.
    """
    return (one.start, one.row[0], one.name not in STAGES, -one.end)


def _where(one: Slice, threads: dict[Row, list[int]]) -> dict[str, Any]:
    return {"pid": one.row[0], "tid": threads[one.row][one.thread], "ts": one.start}
