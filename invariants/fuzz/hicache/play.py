"""Plays one sequence from its first entry to an empty core, and reports a failure.

Phases: play the entries; finish (without faults, every accepted request must end in so many
rounds); drain (unpin all, let every period pass, evict everything), and then the core must be as a
new one: a lock or a reservation that is left stays unseen while requests run. Its storage detaches.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from hicache import registry
from hicache.core import events, lru
from hicache.core.actions import Outcome
from hicache.core.core import Core
from hicache.core.errors import About, CallerError
from hicache.core.events import Event
from hicache.core.state import State
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.ranks import RankError
from invariants.base import (
    CRASH,
    HAZARD,
    INVARIANT,
    LIVENESS,
    WRONG_BYTES,
    Deviation,
    SpecMismatch,
    Violation,
    load_check,
)
from invariants.checker import Checker, Level
from invariants.differential import DifferentialChecker
from invariants.fuzz.hicache.device import player_of
from invariants.fuzz.hicache.draw import ConfigSample, next_entry
from invariants.fuzz.hicache.operations import OPERATIONS, is_too_large
from invariants.fuzz.hicache.player import FAULTS, Player
from invariants.fuzz.play import Failure, Played
from invariants.fuzz.schedules import Job
from invariants.fuzz.sequence import Entry, FuzzSequence, check
from invariants.shadow.story import brief
from sim.errors import HazardError, StuckError, WrongBytesError

ROUNDS = 60
TIERS = (Tier.DEVICE, Tier.HOST)
IDLE_ROUNDS = 8  # rounds of evictions in a row that free nothing
STATES_EVERY = 16  # events between two comparisons of the whole state
SWEPT = 2  # stale entries of an eviction queue, so that short sequences sweep them out, too
STORY = "\nstory:\n"
MOST_TOLD = 30  # operations
# What a core keeps for good or drops later: counters, what its policies remember of the past, what
# storage did not deliver, stale entries of heaps, and the records of the last event.
OF_THE_PAST = frozenset(
    (
        *("tick", "next_node", "next_transfer", "next_receipt", "next_place", "arrivals"),
        *("stride", "attached", "beliefs_since", "distrusted", "unused", "queues", "period_ticks"),
        *("touched", "touched_requests", "out", "pools", "root"),
    )
)


def generate(sample: ConfigSample, operations: int, level: Level = "every", **how: Any) -> Played:
    """Draws and plays a sequence. operations: number of entries. The rest is as for `replay`."""

    def entries(player: Player) -> Iterator[Entry]:
        drawn = (next_entry(player, sample, index) for index in range(operations))
        return (entry for entry in drawn if entry is not None)

    return _run(sample.sequence, entries, level, **how)


def replay(sequence: FuzzSequence, level: Level = "every", name: str = "", **how: Any) -> Played:
    """Plays a sequence. checks: names of the checks to run; default all. follow: called with the
    player before it plays. differential: whether to compare with the specification; default if all
    checks run after every event. explained: a failure's text also has the first difference from the
    specification, and the operations of a short sequence.

    Raises CallerError for an invalid entry, before anything is played.
    """
    check(sequence, OPERATIONS, name or "sequence", FAULTS)
    return _run(sequence, lambda player: sequence.entries, level, **how)


class Comparison(DifferentialChecker):
    """Notes the first event after which the core of a player differs from the specification, in its
    outcomes or in its pools, before the checks see it. first: in words; empty if there is none."""

    def __init__(self, player: Player) -> None:
        super().__init__(player.config)
        self.first, self._player = "", player
        player.observe(self, first=True)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if not self.first:
            try:
                super().on_outcomes(event, outcomes, view)
            except SpecMismatch as error:
                lines = map(str.strip, error.text.splitlines())
                self.first = f"event {self._player.events}: {'; '.join(lines)}"


def _run(
    sequence: FuzzSequence,
    entries: Callable[[Player], Iterable[Entry]],
    level: Level,
    checks: Sequence[str] | None = None,
    differential: bool | None = None,
    follow: Callable[[Player], object] | None = None,
    explained: bool = False,
) -> Played:
    checker = Checker(level, "", None if checks is None else [*map(load_check, checks)])
    played: list[Entry] = []
    failure = None
    swept, lru.LEAST_SWEPT = lru.LEAST_SWEPT, SWEPT
    try:
        player = player_of(sequence, checker)
        beside = None
        if differential or (differential is None and level == "every" and checks is None):
            beside = DifferentialChecker(player.config, every=STATES_EVERY)
            player.observe(beside)
        if follow is not None:
            follow(player)
        first = Comparison(player) if explained else None
        try:
            for entry in entries(player):
                played.append(entry)
                step(player, entry)
            end(player)
            if beside is not None:
                beside.compare_state("at the end", (), player.core.view)
        except Exception as error:
            more = _explained(first.first, played) if first is not None else []
            failure = _failure(error, len(played), player, more)
    finally:
        lru.LEAST_SWEPT = swept
    return Played(replace(sequence, entries=tuple(played)), failure, player)


def _explained(difference: str, played: Sequence[Entry]) -> list[str]:
    lines = [f"first difference from the specification: {difference}"] if difference else []
    if len(played) <= MOST_TOLD:
        lines += ["operations:", *(f"    {entry}" for entry in played)]
    return lines


def step(player: Player, entry: Entry) -> None:
    """Plays an entry after a gap of time. poll: takes what is due. acts: how its actions end."""
    player.begin(entry.gap, entry.poll, entry.acts)
    player.counts[f"op {entry.op}"] += 1
    OPERATIONS[entry.op].play(player, entry.args)
    player.finish()


def end(player: Player) -> None:
    """Finishes, checks what was carried out, lets everything go, and checks what is left."""
    player.acts = ()
    finish(player)
    player.checker.finish(player.core.view)
    player.at_rest()
    drain(player)
    player.at_rest()
    player.checker.finish(player.core.view)


def finish(player: Player) -> None:
    """Ends every accepted request without faults. Raises StuckError after too many rounds."""
    player.settle()
    for _ in range(ROUNDS * (1 + len(player.jobs))):
        if not player.jobs:
            return
        _help(player)
        player.settle()
    reasons = ", ".join(f"request {job.id} {job.stage}" for job in player.jobs.values())
    text = f"no more faults, and after {ROUNDS} rounds each there are still: {reasons}"
    raise StuckError(text, "", *(About("request", job.id) for job in player.jobs.values()))


def _help(player: Player) -> None:
    """Advances one request: decoding requests first, then idle, then waiting ones."""
    job: Job = (player.pick("decoding") or player.pick("idle") or player.pick("waiting"))[0]
    most = len(job.tokens) + 1
    if job.stage == "decoding":
        player.feed(events.Finished(job.id, player.key(job, job.committed), job.committed))
        del player.jobs[job.id]
    elif job.stage == "idle":
        player.give_way(player.feed(events.ContinueWanted(job.id, most)))
    elif is_too_large(player.feed(events.AdmitWanted(job.id, most))):
        player.abort(job)


def drain(player: Player) -> None:
    """Lets everything go. Raises StuckError if anything is left."""
    view = player.core.view
    for pin in tuple(view.pins):
        player.feed(events.UnpinWanted(pin))
    periods = player.config.ttl_periods
    for _ in range(periods + 1 if periods else 0):
        player.feed(events.TimePassed())
        player.settle()
    kept = [About("node", node.id) for node in view.nodes()] if periods else []
    if kept:
        text = f"{periods + 1} periods passed without a use, and nodes did not expire"
        raise StuckError(text, "", *kept)
    for tier in TIERS:
        _evict(player, tier)
    if left := [*_left(player.core)]:
        raise StuckError(f"everything was let go, and there is still: {'; '.join(left)}")
    if view.attached:
        player.feed(events.DetachWanted())
    if view.attached or view.transfers:
        raise StuckError("the storage was detached, and is still attached or has actions in flight")


def _evict(player: Player, tier: Tier) -> None:
    pools, idle = player.core.view.pools(tier), 0
    while idle < IDLE_ROUNDS and any(pool.evictable for pool in pools):
        free = [pool.free for pool in pools]
        for pool in pools:
            player.feed(events.EvictWanted(tier, pool.component, pool.capacity))
            player.settle()
        # a long path that is written back goes node by node, from its end
        idle = 0 if [pool.free for pool in pools] != free else idle + 1


def _left(core: Core) -> Iterator[str]:
    """What a core has that a new one of its configuration has not."""
    new = Core(core.view.config).view
    for field in fields(State):
        result, expected = (getattr(view._state, field.name) for view in (core.view, new))
        plain = type(expected) in (int, bool, list, dict) and field.name not in OF_THE_PAST
        if plain and result != expected:
            yield f"{field.name} {result!r}, expected {expected!r}"
    for pool in (pool for tier in TIERS for pool in core.view.pools(tier)):
        if pool.protected or pool.loans.any() or pool.free != pool.capacity:
            yield f"{pool}, {pool.protected} protected, {int(pool.loans.sum())} loans"


def _failure(error: Exception, at: int, player: Player, more: Sequence[str]) -> Failure:
    """Returns the failure with the last operations of the core, and what else is told. Raises
    CallerError for an exception of a policy of the user."""
    blamed = registry.blamed(error)
    if blamed:
        raise CallerError(blamed) from error
    last = "" if player.last is None else brief(player.last)
    failure = replace(failure_of(error, at), event=player.events, event_text=last)
    lines = [failure.text.partition("\nreplay: ")[0].rstrip("\n")]
    if STORY not in failure.text:
        story = player.checker.story_of(failure.about)
        lines += [STORY.strip(), *(f"    {line}" for line in story)] if story else []
    return replace(failure, text="\n".join([*lines, *more]))


def failure_of(error: Exception, at: int) -> Failure:
    """Converts an exception to a failure."""
    about, text, code = getattr(error, "about", ()), str(error), INVARIANT
    match error:
        case Violation() | RankError() | Deviation():
            code = error.exit_code
            kind = error.check if isinstance(error, Violation) else error.kind
        case SpecMismatch():
            kind = error.kind
        case WrongBytesError():
            code, kind = WRONG_BYTES, error.rule or "BYTES on device"
        case HazardError():
            code, kind = HAZARD, f"HAZARD {error.rule}"
        case StuckError():
            code, kind = LIVENESS, "LIVENESS"
        case _:
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            own = [x for x in frames if x.f_globals.get("__name__", "").startswith("hicache.")]
            site = (own or frames)[-1].f_code.co_name  # the innermost function of the core
            code, kind = CRASH, f"{type(error).__name__} in {site}"
            text = "".join(traceback.format_exception(error))
    return Failure(code, kind, text, at, about)
