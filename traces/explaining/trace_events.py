"""Slices of a timeline as Chrome trace events: which thread each is drawn in, and in which order.

Slices of one thread lie within one another or beside (of the first process, beside); one that would
cut another goes to a lane of its own. Must not live here: what the slices mean (timeline).
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
STAGES = WAITS, SEATED, DECODES = ("waits", "admitted", "decodes")
LEFT = {tier: f"evictions from {tier.name.lower()}" for tier in (Tier.DEVICE, Tier.HOST)}
ROWS = (FAILURE, ENTRIES, EVENTS, LOADS, BACKUPS, *LEFT.values(), REQUEST, NODE)
TIDS = 1000  # of a process; viewers show the number behind a row's name: it is not part of it

Row = tuple[int, str, int]  # process, what, and which one of those (-1: there is one)


@dataclass(eq=False)
class Slice:
    """end: -1 while it is open. reads: the flights of the loads that a pass reads."""

    row: Row
    start: int
    name: str
    args: dict[str, Any]
    end: float = -1
    reads: tuple[int, ...] = ()
    thread: int = 0


def counter(pid: int, name: str, time: int, args: dict[str, int]) -> dict[str, Any]:
    """Values that hold from this time on."""
    return {"ph": "C", "name": name, "ts": time, "pid": pid, "tid": 0, "args": args}


def drawn(
    slices: Sequence[Slice], flights: dict[int, Slice], counters: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """All events of the file, the names of processes and threads first, then in order of time.

    flights: by number, the loads that a slice may say it reads.
    """
    threads = _lanes(slices)
    found = [*_arranged(slices, flights, threads), *counters]
    return [*_names(threads), *sorted(found, key=lambda event: float(event["ts"]))]


def _lanes(slices: Sequence[Slice]) -> dict[Row, list[int]]:
    """The threads of each row: a slice goes to the first one in which it lies within another, or
    beside all."""
    rows: dict[Row, list[Slice]] = defaultdict(list)
    for one in slices:
        rows[one.row].append(one)
    threads: dict[Row, list[int]] = {}
    numbers = [count(pid * TIDS) for pid in range(POOLS + 1)]
    for row in sorted(rows, key=lambda row: (row[0], ROWS.index(row[1]), row[2])):
        lanes: list[list[float]] = []  # the ends of what is open in each, the innermost last
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
    """Metadata: every process and thread has a name and a place."""
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
    """Of two that begin at once the longer comes first, and then what is within it. The ends of an
    arrow have one number (viewers take no words), and come right behind their slices."""
    made: dict[Slice, list[dict[str, Any]]] = {}
    for one in sorted(slices, key=_outer):
        drawn = {"ph": "X", "name": one.name, "cat": PROCESSES[one.row[0] - 1]}
        length = {"dur": one.end - one.start, "args": one.args}
        made[one] = [{**drawn, **_where(one, threads), **length}]
    arrows = count(1)
    for one in slices:
        for source in (flights[load] for load in one.reads if load in flights):
            arrow = {"cat": "read", "name": "is read by", "id": next(arrows)}
            made[source].append({"ph": "s", **arrow, **_where(source, threads)})
            made[one].append({"ph": "f", "bp": "e", **arrow, **_where(one, threads)})
    return chain.from_iterable(made.values())


def _outer(one: Slice) -> tuple[float, int, bool, float]:
    """By their beginning; a load before the pass that reads it, since an arrow that ends before it
    begins is not drawn; what holds others before them, a stage before a pass that outlives it."""
    return (one.start, one.row[0], one.name not in STAGES, -one.end)


def _where(one: Slice, threads: dict[Row, list[int]]) -> dict[str, Any]:
    return {"pid": one.row[0], "tid": threads[one.row][one.thread], "ts": one.start}
