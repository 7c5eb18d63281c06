"""A replay as Chrome trace events: opens in ui.perfetto.dev and in chrome://tracing.

One unit of a tape's virtual time is a microsecond; events at the same time are a nanosecond apart,
in their order. Slices that overlap go to lanes of their own, since those of one thread must nest.

    tape        what each entry led to, and the failure      locks      who locks which node
    transfers   loads and backups                            evictions  from device and host
    requests    the passes of each                           pools      pages by state

Must not live here: what happened (invariants/fuzz/witness), or files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hicache.core.actions import Backup, Evicted, Load, Outcome, Prefill, Refused, Restarted
from hicache.core.events import BackupDone, LoadDone, PrefillDone
from hicache.core.types import PageState, Tier
from invariants.fuzz.spoken import spoken
from invariants.fuzz.witness import Account, Step
from invariants.story import brief

TAPE, TRANSFERS, REQUESTS, LOCKS, EVICTIONS, POOLS = range(1, 7)
PROCESSES = ("tape", "transfers", "requests", "locks", "evictions", "pools")
TICK = 0.001
STATES = tuple(state.name.lower() for state in PageState)
_REPLIES = (LoadDone, BackupDone, PrefillDone)


@dataclass
class _Slice:
    """group: of threads, one lane each where slices overlap. reads: the flights of the loads that
    a pass reads."""

    process: int
    group: str
    start: float
    name: str
    args: dict[str, Any]
    end: float = -1.0
    reads: tuple[int, ...] = ()
    thread: int = 0


@dataclass
class _Chart:
    """Everything so far. points: (process, group, time, name, args)."""

    slices: list[_Slice] = field(default_factory=list)
    flights: dict[int, _Slice] = field(default_factory=dict)
    points: list[tuple[int, str, float, str, dict[str, Any]]] = field(default_factory=list)
    locks: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)  # those held, by id
    pools: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)


def timeline(account: Account) -> Iterator[str]:
    """The text of the file, in pieces."""
    chart = _Chart()
    time = 0.0
    for step in account.steps:
        time = round(max(float(step.now), time + TICK), 3)
        _entry(chart, account, step, time)
        _event(chart, step, time)
        for item in step.outcomes:
            _outcome(chart, item, time)
        _locks(chart, step, time)
        _pools(chart, step, time)
    end = round(time + TICK, 3)
    _close(chart, account, end)
    threads = _lanes(chart, end)
    events = [*_names(threads), *sorted(_drawn(chart, threads), key=lambda one: float(one["ts"]))]
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    for at, event in enumerate(events):
        yield (",\n" if at else "") + json.dumps(event, separators=(",", ":"))
    yield "\n]}\n"


# -- what there is


def _entry(chart: _Chart, account: Account, step: Step, time: float) -> None:
    """A slice from the first event of an entry to that of the next."""
    entries = [one for one in chart.slices if one.process == TAPE]
    if entries and entries[-1].args["entry"] == step.entry:
        return
    if entries:
        entries[-1].end = time
    tape = account.outcome.tape
    name = spoken(tape.entries[step.entry - 1]) if step.entry else "the end: all that is left"
    op = name.split(" ", maxsplit=1)[0] if step.entry else "end"
    args = {"entry": step.entry, "what": name}
    chart.slices.append(_Slice(TAPE, "entries", time, f"{step.entry} {op}", args))


def _event(chart: _Chart, step: Step, time: float) -> None:
    event = step.event
    if isinstance(event, _REPLIES):
        flight = chart.flights.get(event.flight)
        if flight is not None and flight.end < 0:
            flight.end = time
            flight.args["ok"] = event.ok
        return
    request = getattr(event, "request", None)
    group = "events" if request is None else f"request {request}"
    chart.points.append((REQUESTS, group, time, type(event).__name__, {"event": brief(event)}))


def _outcome(chart: _Chart, item: Outcome, time: float) -> None:
    if isinstance(item, Load | Backup):
        pages = {copy.component: len(copy.source) for copy in item.copies}
        kind = type(item).__name__.lower()
        _fly(chart, item.flight, _Slice(TRANSFERS, kind, time, f"{kind} {item.flight}", pages))
    elif isinstance(item, Prefill):
        args = {"start": item.start, "end": item.end, "last": item.last}
        name = f"pass {item.flight}"
        group = f"request {item.request}"
        _fly(chart, item.flight, _Slice(REQUESTS, group, time, name, args, reads=item.after))
    elif isinstance(item, Refused | Restarted):
        group = f"request {item.request}" if item.request >= 0 else "events"
        reason = item.reason if isinstance(item, Refused) else "restarted"
        chart.points.append((REQUESTS, group, time, reason, {"outcome": brief(item)}))
    elif isinstance(item, Evicted):
        name = f"{item.component}: {len(item.pages)} {'demoted' if item.demoted else 'lost'}"
        args = {"pages": item.pages.tolist(), "last use": item.last_use}
        chart.points.append((EVICTIONS, Tier(item.tier).name.lower(), time, name, args))


def _fly(chart: _Chart, flight: int, one: _Slice) -> None:
    chart.slices.append(one)
    chart.flights[flight] = one


def _locks(chart: _Chart, step: Step, time: float) -> None:
    """A lock begins and ends under an id of its own; those of one node have one name."""
    for change in step.changes:
        if not change.lock:
            continue
        side = f"{Tier(change.tier).name.lower()} {change.component}"
        number = f"{change.lock}/{change.node}/{side}"
        held = chart.locks.pop(number, None)
        if held is None:
            args = {"what": change.text, "by": str(change.spots[0]) if change.spots else ""}
            chart.locks[number] = (f"node {change.node} {side}", args)
            chart.events.append(_lock("b", number, *chart.locks[number], time))
        else:
            chart.events.append(_lock("e", number, held[0], {}, time))


def _lock(phase: str, number: str, name: str, args: dict[str, Any], time: float) -> dict[str, Any]:
    made = {"ph": phase, "cat": "lock", "id": number, "name": name, "args": args}
    return {**made, "pid": LOCKS, "tid": 1, "ts": time}


def _pools(chart: _Chart, step: Step, time: float) -> None:
    for (tier, component), counts in step.pools.items():
        if chart.pools.get((tier, component)) != counts:
            chart.pools[tier, component] = counts
            made = {"ph": "C", "name": f"{Tier(tier).name.lower()} {component}", "ts": time}
            args = dict(zip(STATES, counts, strict=True))
            chart.events.append({**made, "pid": POOLS, "tid": 1, "args": args})


def _close(chart: _Chart, account: Account, end: float) -> None:
    """What is open where the replay ends."""
    for number, (name, _) in chart.locks.items():
        chart.events.append(_lock("e", number, name, {"open": True}, end))
    failure = account.outcome.failure
    if failure is not None:
        name = f"FAILURE {failure.code} {failure.kind}"
        made = {"ph": "i", "s": "g", "name": name, "pid": TAPE, "tid": 1, "ts": end}
        chart.events.append({**made, "args": {"text": failure.text}})


# -- where it is drawn


def _lanes(chart: _Chart, end: float) -> dict[tuple[int, str], list[int]]:
    """The threads of each group: a slice goes to the first one that is free."""
    groups = [(one.process, one.group) for one in chart.slices]
    groups += [(process, group) for process, group, *_ in chart.points]
    threads: dict[tuple[int, str], list[int]] = {}
    busy: dict[tuple[int, str], list[float]] = {}
    for key in dict.fromkeys(groups):
        mine = sorted(
            (one for one in chart.slices if (one.process, one.group) == key),
            key=lambda one: one.start,
        )
        lanes = busy.setdefault(key, [0.0])
        for one in mine:
            if one.end < 0:
                one.end, one.args["open"] = end, True
            free = next((at for at, until in enumerate(lanes) if until <= one.start), len(lanes))
            lanes[free : free + 1] = [one.end]
            one.thread = free
    numbers = dict.fromkeys((process for process, _ in busy), 0)
    for (process, group), lanes in busy.items():
        first = numbers[process] + 1
        numbers[process] += len(lanes)
        threads[process, group] = list(range(first, first + len(lanes)))
    return threads


def _names(threads: dict[tuple[int, str], list[int]]) -> Iterator[dict[str, Any]]:
    """Metadata: every process and thread has a name and a place."""
    for pid, name in enumerate(PROCESSES, 1):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        order = {"sort_index": pid}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": order}
    for pid in (LOCKS, POOLS):
        yield _thread(pid, 1, PROCESSES[pid - 1])
    for (pid, group), numbers in threads.items():
        for lane, tid in enumerate(numbers):
            yield _thread(pid, tid, group if not lane else f"{group}, lane {lane + 1}")


def _thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _drawn(chart: _Chart, threads: dict[tuple[int, str], list[int]]) -> Iterator[dict[str, Any]]:
    yield from chart.events
    for process, group, time, name, args in chart.points:
        made = {"ph": "i", "s": "t", "name": name, "pid": process, "ts": time, "args": args}
        yield {**made, "tid": threads[process, group][0]}
    place = {
        flight: {"pid": one.process, "tid": threads[one.process, one.group][one.thread]}
        for flight, one in chart.flights.items()
    }
    for one in chart.slices:
        where = {"pid": one.process, "tid": threads[one.process, one.group][one.thread]}
        length = round(one.end - one.start, 3)
        made = {"ph": "X", "name": one.name, "cat": PROCESSES[one.process - 1], "args": one.args}
        yield {**made, **where, "ts": one.start, "dur": length}
        for load in one.reads:
            if load in place:
                arrow = {"cat": "read", "name": "is read by", "id": f"{load}/{one.name}"}
                yield {"ph": "s", **arrow, **place[load], "ts": chart.flights[load].start}
                yield {"ph": "f", "bp": "e", **arrow, **where, "ts": one.start}
