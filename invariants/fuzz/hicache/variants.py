"""Variants of a tape: its twins, every order of completions, a failure of every action.

`played_twins` and `failed_transfers` play the variants of a sequence that was clean. `orders` plays
a tape of at most five operations under every schedule of at most four pending replies, including
late replies. `sweep` makes the k-th action fail for every k in every given way, and makes the k-th
page unavailable for every entry, k and component. Each outcome has the tape that repeats it, so a
failure can be replayed and shrunk. Does not make twins (see twins) or faults (see faults).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hicache.core.actions import Backup, Load
from hicache.core.errors import CallerError
from invariants.fuzz.hicache import twins
from invariants.fuzz.hicache.ballast import FIRST
from invariants.fuzz.hicache.faults.plain import RIVALS
from invariants.fuzz.hicache.hand import PLAIN
from invariants.fuzz.hicache.ops.base import Operation
from invariants.fuzz.hicache.play import Outcome, compared, replay
from invariants.fuzz.schedules import Script
from invariants.fuzz.sequence import Act, Entry, Tape
from invariants.watch import Level

MOST_OPERATIONS = 5
WAYS = ("fail", "submit error", "torn", "lost", "abort before the reply", "flush during the copy")
ALLOCATES = ("admit", "prefill", "grow", "revisit", "finish", "retract", "wait", "quiesce")


def orders(tape: Tape, ops: dict[str, Operation], most: int = 1 << 20) -> Iterator[Outcome]:
    """Yields the outcome of every order. Enumerates them like an odometer, with one wheel per
    choice of the previous run.
    """
    if len(tape.entries) > MOST_OPERATIONS:
        raise CallerError(
            f"orders: expected at most {MOST_OPERATIONS} operations, found {len(tape.entries)}"
        )
    script: list[int] | None = []
    for _ in range(most):
        if script is None:
            return
        order = ":".join(["script", *map(str, script)])
        outcome = replay(replace(tape, order=order), ops)
        yield outcome
        schedule = outcome.hand.schedule
        assert isinstance(schedule, Script)
        script = _next(schedule.chosen, schedule.asked)


def _next(chosen: Sequence[int], asked: Sequence[int]) -> list[int] | None:
    """Returns the next script: advances the last choice that can advance, and drops the
    later ones.
    """
    for at in reversed(range(len(chosen))):
        if chosen[at] + 1 < asked[at]:
            return [*chosen[:at], chosen[at] + 1]
    return None


def sweep(
    tape: Tape, ops: dict[str, Operation], ways: Sequence[str] = WAYS
) -> Iterator[tuple[str, Outcome]]:
    """Yields (description, outcome) for a failure of each action, then of each allocation."""
    plain = replay(tape, ops)
    yield "nothing fails", plain
    for number, (entry, turn, _) in enumerate(plain.hand.issued):
        for way in ways if entry >= 0 else ():
            made = with_fault(tape, entry, turn, way)
            yield f"action {number}: {way}", replay(made, ops)
    for at, one in enumerate(tape.entries):
        if one.op in ALLOCATES:
            yield from _starved(tape, ops, at)


def _starved(tape: Tape, ops: dict[str, Operation], at: int) -> Iterator[tuple[str, Outcome]]:
    """Plays entry `at` with k free pages of a component, for every k up to the number that it
    needs.
    """
    for name, capacity in zip(tape.config.components, tape.config.device_pages, strict=True):
        for pages in range(capacity):
            outcome = replay(with_hold(tape, at, name, pages), ops)
            yield f"entry {at} finds {pages} pages of {name}", outcome
            if not any(FIRST <= number < RIVALS for number in outcome.hand.used):
                break


def with_fault(tape: Tape, entry: int, turn: int, fault: str) -> Tape:
    """Returns the tape with this fault in one action of one entry."""
    one = tape.entries[entry]
    acts = list(one.acts) or [PLAIN]
    acts = [acts[at % len(acts)] for at in range(max(len(acts), turn + 1))]
    acts[turn] = Act(acts[turn].delay, acts[turn].tie, fault)
    changed = one._replace(acts=tuple(acts))
    return replace(tape, entries=(*tape.entries[:entry], changed, *tape.entries[entry + 1 :]))


def with_hold(tape: Tape, at: int, component: str, pages: int) -> Tape:
    """Returns the tape in which only this many device pages of a component are available to one
    entry.
    """
    hold = Entry("hoard", {"take": True, "leave": pages, "of": component}, 0, False)
    let = Entry("hoard", {"take": False}, 0, False)
    entries = (*tape.entries[:at], hold, tape.entries[at], let, *tape.entries[at + 1 :])
    return replace(tape, entries=entries)


_TRANSFERS = (Load.__name__, Backup.__name__)


def played_twins(
    first: Outcome,
    ops: dict[str, Operation],
    level: Level = "every",
    against: bool | None = None,
) -> Iterator[Outcome]:
    """Yields the outcome of each twin. One with other answers fails under the tape of `first`."""
    tape = first.tape
    for twin in twins.twins(tape):
        other = replay(twin.tape, ops, level, against=against)
        if other.failure is None:
            noted = replace(first, tape=replace(tape, notes=tape.notes | {twins.NOTE: twin.name}))
            other = Outcome(noted.tape, compared(noted, other), other.hand)
        yield other


def failed_transfers(
    first: Outcome,
    ops: dict[str, Operation],
    level: Level = "every",
    against: bool | None = None,
) -> Iterator[Outcome]:
    """Yields the outcome of the tape with its k-th transfer failing, for each k."""
    for entry, turn, action in first.hand.issued:
        if entry >= 0 and action in _TRANSFERS:
            failing = with_fault(first.tape, entry, turn, "fail")
            yield replay(failing, ops, level, against=against)
