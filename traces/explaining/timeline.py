"""A replay as Chrome trace events, which ui.perfetto.dev opens.

The axis shows the order of events, not the time of the tape: event N begins at microsecond N and
takes one microsecond. Everything that an event starts lasts until the event that ends it. After a
failure, everything still open lasts a tenth of the whole longer, so that it is visible.

    replay      the failure, entries and events of the tape, transfers, evictions, the tape's time
    requests    for each request: waiting, admitted, decoding, its passes and refusals
    locks       for each node: the holders of its locks
    pools       pages by state

Does not record events (see invariants/explain), assign lanes or arrows (see trace_events), or write
files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
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

from .trace_events import (
    ADMITTED,
    BACKUPS,
    DECODES,
    ENTRIES,
    EVENTS,
    FAILURE,
    LEFT,
    LOADS,
    LOCKS,
    NODE,
    POOLS,
    REPLAY,
    REQUEST,
    REQUESTS,
    WAITS,
    Row,
    Slice,
    as_events,
    counter,
)

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
