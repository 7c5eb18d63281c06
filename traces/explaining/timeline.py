"""A replay as Chrome trace events, which ui.perfetto.dev opens.

The axis shows the order of events, not the time of the tape: event N begins at microsecond N and
takes one microsecond. Everything that an event starts lasts until the event that ends it. After a
failure, everything still open lasts a tenth of the whole longer, so that it is visible.

    replay      the failure, entries and events of the tape, transfers, evictions, the tape's time
    requests    for each request: waiting, admitted, decoding, its passes and refusals
    locks       for each node: the holders of its locks
    pools       pages by state

Slices of one thread are nested or follow each other (in the first process they only follow). A
slice that would overlap another one gets another lane. Does not record events (see
invariants/explain) or write files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from hicache.core.actions import (
    Admitted,
    Backup,
    Evicted,
    Load,
    Outcome,
    Prefill,
    Refused,
    Released,
    Restarted,
)
from hicache.core.events import Arrived, BackupDone, Flushed, LoadDone, PrefillDone, Retracted
from hicache.core.types import PageState, Tier
from invariants.books.story import brief
from invariants.explain.explain import decisive, named, title
from invariants.explain.instruments import Change
from invariants.explain.instruments import named as pages_of
from invariants.explain.recorder import Account, Step
from invariants.fuzz.tapes.tape import spoken

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


STATES = tuple(state.name.lower() for state in PageState)
WITHIN = 0.5  # length of a slice that begins and ends in the same event
MOST_CHANGES = 24


@dataclass
class _Chart:
    """The chart so far.

    last: by request, the flight of the pass that completes its prompt. stages: by request, its
    current stage. locks: open locks by (receipt, node, tier, component). ended: closed locks, as
    trace_events.
    """

    slices: list[Slice] = field(default_factory=list)
    flights: dict[int, Slice] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    stages: dict[int, Slice] = field(default_factory=dict)
    locks: dict[tuple[int, int, int, str], tuple[int, Change]] = field(default_factory=dict)
    ended: dict[tuple[Any, ...], Slice] = field(default_factory=dict)
    pools: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    counters: list[dict[str, Any]] = field(default_factory=list)


def timeline(account: Account) -> Iterator[str]:
    """Yields the text of the file in pieces."""
    chart = _Chart()
    states = _states(account)
    entry: Slice | None = None
    chart.counters.append(counter(REPLAY, "tape", 0, {"time": 0}))
    for step in account.steps:
        if entry is None or entry.args["entry"] != step.entry:
            if entry is not None:
                entry.end = step.number
            entry = _entry(chart, account, step)
        _event(chart, step)
        for item in step.outcomes:
            _outcome(chart, item, step)
        _evictions(chart, step)
        _locks(chart, step)
        _counters(chart, step, states)
    _close(chart, account)
    events = as_events(chart.slices, chart.flights, chart.counters)
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    for at, event in enumerate(events):
        yield (",\n" if at else "") + json.dumps(event, separators=(",", ":"))
    yield "\n]}\n"


# -- slices and counters


def _add(chart: _Chart, row: Row, start: int, name: str, args: dict[str, Any]) -> Slice:
    """Adds an open slice."""
    chart.slices.append(Slice(row, start, name, args))
    return chart.slices[-1]


def _entry(chart: _Chart, account: Account, step: Step) -> Slice:
    """The slice of an entry, from its first event to the first event of the next entry."""
    if not step.entry:
        args = {"entry": 0, "what": "everything is released and evicted"}
        return _add(chart, (REPLAY, ENTRIES, -1), step.number, "end", args)
    what = spoken(account.outcome.tape.entries[step.entry - 1])
    name = f"{step.entry} {what.split(' ', maxsplit=1)[0]}"
    args = {"entry": step.entry, "what": what}
    return _add(chart, (REPLAY, ENTRIES, -1), step.number, name, args)


def _event(chart: _Chart, step: Step) -> None:
    event, now = step.event, step.number
    changes = [f"{one.text} ({_line(one)})" for one in step.changes if not one.minor]
    more = len(changes) - MOST_CHANGES
    args = {
        "event": brief(event),
        "time": step.now,
        "outcomes": [brief(item) for item in step.outcomes],
        "changes": changes[:MOST_CHANGES] + [f"and {more} more"] * (more > 0),
    }
    name = f"{now} {type(event).__name__}"
    _add(chart, (REPLAY, EVENTS, -1), now, name, args).end = now + 1
    if isinstance(event, LoadDone | BackupDone | PrefillDone):
        flight = chart.flights.get(event.flight)
        if flight is not None and flight.end < 0:
            flight.end, flight.args["ok"] = now, event.ok
            flight.name = f"{'failed ' * (not event.ok)}{flight.name}"
            request = flight.row[2]
            stage = chart.stages.get(request)
            complete = event.ok and chart.last.get(request) == event.flight
            if complete and stage is not None and stage.name == ADMITTED:
                _stage(chart, request, DECODES, now)
    elif isinstance(event, Arrived):
        _stage(chart, event.request, WAITS, now)


def _line(change: Change) -> str:
    """The source line that decided the change."""
    return str(decisive(change.source_lines) or "not by a line of the core")


def _outcome(chart: _Chart, item: Outcome, step: Step) -> None:
    now = step.number
    if isinstance(item, Load | Backup):
        _transfer(chart, item, step)
    elif isinstance(item, Prefill):
        table = pages_of(item.tables[0].tolist())
        args = {
            "start": item.start_token,
            "end": item.end_token,
            "last": item.completes_prompt,
            "table": table,
        }
        one = _add(chart, (REQUESTS, REQUEST, item.request), now, f"pass {item.flight}", args)
        one.reads = item.after
        chart.flights[item.flight] = one
        chart.last[item.request] = item.flight if item.completes_prompt else -1
    elif isinstance(item, Refused) and item.request >= 0:
        row = (REQUESTS, REQUEST, item.request)
        one = _add(chart, row, now, f"refused: {item.reason}", {"outcome": brief(item)})
        one.end = now + 1
    elif isinstance(item, Admitted):
        _stage(chart, item.request, ADMITTED, now, brief(item))
    elif isinstance(item, Released):
        _stage(chart, item.request, WAITS if isinstance(step.event, Retracted) else "", now)
    elif isinstance(item, Restarted):
        _stage(chart, item.request, WAITS, now, "restarted")


def _stage(chart: _Chart, request: int, name: str, now: int, why: str = "") -> None:
    """Ends the current stage of the request and starts another; "" starts none."""
    before = chart.stages.pop(request, None)
    if before is not None:
        before.end = now
    if name:
        args = {"why": why} if why else {}
        chart.stages[request] = _add(chart, (REQUESTS, REQUEST, request), now, name, args)


def _transfer(chart: _Chart, item: Load | Backup, step: Step) -> None:
    """Adds a transfer, with the nodes that it locks and the pages of each component."""
    loads = isinstance(item, Load)
    tiers = ("host", "device") if loads else ("device", "host")
    args: dict[str, Any] = {"request": item.request} if isinstance(item, Load) else {}
    mine = [one.node for one in step.changes if one.lock and ("flight", item.flight) in one.whom]
    args["nodes"] = " ".join(str(node) for node in sorted(set(mine)))
    for name in dict.fromkeys(copy.component for copy in item.copies):
        some = [copy for copy in item.copies if copy.component == name]
        source = [page for copy in some for page in copy.source.tolist()]
        target = [page for copy in some for page in copy.target.tolist()]
        args[name] = f"{tiers[0]} {pages_of(source)} -> {tiers[1]} {pages_of(target)}"
    size = sum(len(copy.source) for copy in item.copies)
    name = f"{'load' if loads else 'backup'} {item.flight}: {size} page{'s' * (size != 1)}"
    row = (REPLAY, LOADS if loads else BACKUPS, -1)
    chart.flights[item.flight] = _add(chart, row, step.number, name, args)


def _evictions(chart: _Chart, step: Step) -> None:
    """Adds one slice for all evictions of an event from one tier."""
    for tier, row in LEFT.items():
        args: dict[str, list[str]] = defaultdict(list)
        sizes: dict[str, int] = defaultdict(int)
        for item in step.outcomes:
            if isinstance(item, Evicted) and item.tier == tier:
                fate = "demoted" if item.demoted else "lost"
                last = f"last use {item.last_use}"
                args[item.component].append(f"{pages_of(item.pages.tolist())} {fate}, {last}")
                sizes[f"{item.component} {fate}"] += len(item.pages)
        if args:
            name = ", ".join(f"{size} {what}" for what, size in sizes.items())
            _add(chart, (REPLAY, row, -1), step.number, name, dict(args)).end = step.number + 1


def _locks(chart: _Chart, step: Step) -> None:
    for change in step.changes:
        if change.lock:
            key = (change.lock, change.node, change.tier, change.component)
            held = chart.locks.pop(key, None)
            if held is None:
                chart.locks[key] = (step.number, change)
            else:
                _locked(chart, *held, max(step.number, held[0] + WITHIN), _line(change))
    if isinstance(step.event, Flushed) and not any(isinstance(it, Refused) for it in step.outcomes):
        # the nodes went with their locks, and no unlocking tells of it
        for start, taken in chart.locks.values():
            _locked(chart, start, taken, max(step.number, start + WITHIN), "a flush")
        chart.locks.clear()


def _locked(chart: _Chart, start: int, taken: Change, end: float, given: str = "") -> None:
    """Adds a lock that has ended. given: what gave it up; empty at the end of the replay.

    The locks of one holder on one tier of a node share a slice if they begin and end together.
    """
    key = (taken.lock, taken.node, taken.tier, start, end)
    known = chart.ended.get(key)
    if known is None:
        holder = taken.text.partition(" locked by ")[2]
        name = f"{holder}: {Tier(taken.tier).name.lower()}"
        args = {"taken by": _line(taken)}
        args |= {"given up by": given} if given else {}
        known = chart.ended[key] = _add(chart, (LOCKS, NODE, taken.node), start, name, args)
        known.end = end
        known.args |= {} if given else {"open": True}
    known.name += f" {taken.component}"


def _states(account: Account) -> dict[tuple[int, str], list[int]]:
    """For each pool, the states that any of its pages ever has."""
    seen: dict[tuple[int, str], set[int]] = defaultdict(set)
    for step in account.steps:
        for pool, counts in step.pools.items():
            seen[pool] |= {at for at, pages in enumerate(counts) if pages}
    return {pool: sorted(some) for pool, some in seen.items()}


def _counters(chart: _Chart, step: Step, states: dict[tuple[int, str], list[int]]) -> None:
    chart.counters.append(counter(REPLAY, "tape", step.number, {"time": step.now}))
    for pool, counts in step.pools.items():
        if chart.pools.get(pool) != counts and states[pool]:
            chart.pools[pool] = counts
            name = f"{Tier(pool[0]).name.lower()} {pool[1]}"
            args = {STATES[at]: counts[at] for at in states[pool]}
            chart.counters.append(counter(POOLS, name, step.number, args))


def _close(chart: _Chart, account: Account) -> None:
    """Ends all open slices at the end of the replay, and adds the failure."""
    failure = account.outcome.failure
    last = len(account.steps)
    end = last + 1 if failure is None else last + max(1, -(-last // 10))
    for start, taken in chart.locks.values():
        _locked(chart, start, taken, end)
    for one in chart.slices:
        if one.end < 0:
            one.end, one.args["open"] = end, True
    if failure is not None:
        concerns = ", ".join(map(title, named(account)))
        args = {"concerns": concerns, "text": failure.text.splitlines()}
        name = f"FAILURE {failure.code} {failure.kind}"
        _add(chart, (REPLAY, FAILURE, -1), last, name, args).end = end


# -- threads and order


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
