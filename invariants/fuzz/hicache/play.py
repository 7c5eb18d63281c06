"""Plays one sequence from its first entry to an empty core, and reports a failure.

Phases: play the entries; heal (without faults, every accepted request must end in a bounded number
of rounds); drain (nothing may be left, see drain).
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hicache import registry
from hicache.core.actions import Refused
from hicache.core.errors import About, CallerError
from hicache.core.events import AdmitWanted, ContinueWanted, Finished
from hicache.core.radix import lru
from hicache.runtime.group import RankError
from invariants.against import Against
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
from invariants.books.story import brief
from invariants.fuzz.hicache.contents import WrongContent
from invariants.fuzz.hicache.device import hand_of
from invariants.fuzz.hicache.drain import drain
from invariants.fuzz.hicache.draw import Swarm, next_entry
from invariants.fuzz.hicache.hand import FAULTS, Hand, Misuse
from invariants.fuzz.play import Failure, Outcome
from invariants.fuzz.records import Job
from invariants.fuzz.sequence import Entry, Operation, Tape, check
from invariants.watch import Level, Watch
from sim.errors import HazardError, StuckError, WrongBytesError

ROUNDS = 60
SWEPT = 2  # entries
MOST_LENGTHENED = 1000  # entries
STORY = "\nstory:\n"
HARNESS = 17


@contextmanager
def often_swept() -> Iterator[None]:
    """Sweeps stale entries out of eviction queues at sizes that a short sequence reaches. This may
    change when work is done, but never a decision."""
    before = lru.LEAST_SWEPT
    lru.LEAST_SWEPT = SWEPT
    try:
        yield
    finally:
        lru.LEAST_SWEPT = before


@often_swept()
def generate(
    swarm: Swarm,
    ops: dict[str, Operation],
    seed: int,
    operations: int,
    level: Level = "every",
    checks: Sequence[str] | None = None,
    command: str = "",
    against: bool | None = None,
    follow: Callable[[Hand], None] | None = None,
) -> Outcome:
    """Draws and plays a tape. operations: number of entries; a longer swarm has more of them.
    checks: names of the checks to run; default all. command: the command that plays it again, for
    reports. against: whether to compare with the specification; default if all checks run after
    every event. follow: called with the hand before it plays.
    """
    asked = None if checks is None else [load_check(name) for name in checks]
    command = command or f"hicache fuzz --seed {seed} --sequences 1"
    tape = Tape(
        swarm.config,
        (),
        seed,
        swarm.order,
        ranks=swarm.ranks,
        executor=swarm.executor,
        pairs=swarm.pairs,
    )
    hand = hand_of(tape, Watch(level, command, asked))
    _compare(hand, level, checks, against)
    if follow is not None:
        follow(hand)
    entries: list[Entry] = []
    failure = None
    try:
        length = max(operations, min(MOST_LENGTHENED, operations * swarm.longer))
        for index in range(length):
            entry = next_entry(hand, swarm, ops, seed, index)
            if entry is not None:
                entries.append(entry)
                step(hand, ops, entry)
        end(hand)
    except Exception as error:
        failure = _told(error, len(entries), command, hand)
    _close(hand, failure)
    tape = replace(tape, entries=tuple(entries))
    return Outcome(tape, failure, hand)


@often_swept()
def replay(
    tape: Tape,
    ops: dict[str, Operation],
    level: Level = "every",
    name: str = "",
    checks: Sequence[str] | None = None,
    follow: Callable[[Hand], None] | None = None,
    against: bool | None = None,
) -> Outcome:
    """Plays a tape. checks: names of the checks to run; default all. follow: called with the hand
    before it plays. against: as for `generate`.

    Raises CallerError for an invalid entry, before anything is played.
    """
    check(tape, ops, name or "tape", FAULTS)
    shown = shlex.quote(name if name.isprintable() else ascii(name)[1:-1])
    command = f"hicache fuzz --replay {shown}" if name else ""
    asked = None if checks is None else [load_check(one) for one in checks]
    hand = hand_of(tape, Watch(level, command, asked))
    _compare(hand, level, checks, against)
    if follow is not None:
        follow(hand)
    failure = None
    done = 0
    try:
        for entry in tape.entries:
            done += 1
            step(hand, ops, entry)
        end(hand)
    except Exception as error:
        failure = _told(error, done, command, hand)
    _close(hand, failure)
    return Outcome(tape, failure, hand)


def _compare(hand: Hand, level: Level, checks: Sequence[str] | None, against: bool | None) -> None:
    """Compares the core of the hand with the specification, after the checks, if that is wanted."""
    if against or (against is None and level == "every" and checks is None):
        hand.observe_last(Against(hand.config))


def _close(hand: Hand, failure: Failure | None) -> None:
    """Ends the hand. A device that does not get on is left alone, since its end waits for it."""
    if failure is None or failure.code != LIVENESS:
        hand.close()


def step(hand: Hand, ops: dict[str, Operation], entry: Entry) -> None:
    hand.begin(entry.gap, entry.poll, entry.acts)
    hand.counts[f"op {entry.op}"] += 1
    ops[entry.op].play(hand, entry.args)
    hand.finish()


def end(hand: Hand) -> None:
    """Heals, checks the cached pages, lets everything go, and checks what is left."""
    hand.acts = ()
    heal(hand)
    hand.watch.finish(hand.core.view)
    hand.at_rest()
    drain(hand)
    hand.at_rest()
    hand.watch.finish(hand.core.view)


def heal(hand: Hand) -> None:
    """Ends every accepted request without faults. Raises StuckError after too many rounds."""
    hand.settle()
    for _ in range(ROUNDS * (1 + len(hand.jobs))):
        if not hand.jobs:
            return
        _help(hand)
        hand.settle()
    reasons = ", ".join(f"request {job.id} {job.stage}" for job in hand.jobs.values())
    raise StuckError(
        f"no more faults, and after {ROUNDS} rounds each there are still: {reasons}",
        "",
        *(About("request", job.id) for job in hand.jobs.values()),
    )


def _help(hand: Hand) -> None:
    """Advances one request: decoding requests first, then idle, then waiting ones."""
    job = next(iter(hand.pick("decoding") or hand.pick("idle") or hand.pick("waiting")))
    most = len(job.tokens) + 1
    if job.stage == "decoding":
        hand.feed(Finished(job.id, hand.key(job, job.committed), job.committed))
        del hand.jobs[job.id]
    elif job.stage == "idle":
        hand.give_way(hand.feed(ContinueWanted(job.id, most)))
    else:
        _admit(hand, job, most)


def _admit(hand: Hand, job: Job, most: int) -> None:
    outcomes = hand.feed(AdmitWanted(job.id, most))
    if any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes):
        hand.abort(job)


def _told(error: Exception, at: int, command: str, hand: Hand) -> Failure:
    """Returns the failure with its source lines, the last operations of the core, and the command
    that plays it again, if known. Raises CallerError for an exception of a policy of the user.
    """
    blamed = registry.blamed(error)
    if blamed:
        raise CallerError(f"{blamed}; to repeat it: {command}" if command else blamed) from error
    last = "" if hand.last is None else brief(hand.last)
    failure = replace(failure_of(error, at), event=hand.events, event_text=last)
    lines = [failure.text.rstrip("\n")]
    if STORY not in failure.text:
        story = hand.watch.story_of(failure.about)
        lines += [STORY.strip(), *(f"    {line}" for line in story)] if story else []
    if command and "\nreplay: " not in failure.text:
        lines.append(f"replay: {command}")
    return replace(failure, text="\n".join(lines))


def failure_of(error: Exception, at: int) -> Failure:
    """Converts an exception to a failure."""
    about, text = getattr(error, "about", ()), str(error)
    if isinstance(error, Violation):
        return Failure(error.exit_code, error.check, text, at, about)
    if isinstance(error, SpecMismatch):
        return Failure(INVARIANT, error.kind, text, at, about)
    if isinstance(error, WrongContent):
        return Failure(WRONG_BYTES, "BYTES by content", text, at, about)
    if isinstance(error, RankError | Deviation):
        return Failure(error.exit_code, error.kind, text, at, about)
    if isinstance(error, WrongBytesError):
        return Failure(WRONG_BYTES, error.rule or "BYTES on device", text, at, about)
    if isinstance(error, HazardError):
        return Failure(HAZARD, f"HAZARD {error.rule}", text, at, about)
    if isinstance(error, StuckError):
        return Failure(LIVENESS, "LIVENESS", text, at, about)
    if isinstance(error, Misuse):
        return Failure(INVARIANT, "MISUSE", text, at, about)
    text = "".join(traceback.format_exception(error))
    return Failure(CRASH, f"{type(error).__name__} in {_inner(error)}", text, at, about)


def _inner(error: Exception) -> str:
    """Returns the innermost function of the core in the traceback, or the innermost of all."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [one for one in frames if str(one.f_globals.get("__name__")).startswith("hicache.")]
    return (own or frames)[-1].f_code.co_name
