"""Small scopes, completely: every order of completions, and a failure at every place.

`orders` plays a tape of at most five operations under every schedule of at most four replies under
way, leaving them for later included. `sweep` makes the k-th action fail for every k, in every way
asked for, and refuses the k-th page of an entry for every k, of every component. Every run is of an
ordinary tape, so what is found replays and shrinks. Must not live here: what a fault does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hicache.core.errors import CallerError

from .faults.ballast import FIRST
from .hand import PLAIN
from .ops.base import Operation
from .ops.hoard import RIVALS
from .play import Outcome, replay
from .schedules.script import Script
from .tapes.tape import Act, Entry, Tape

MOST_OPERATIONS = 5
WAYS = ("fail", "submit error", "torn", "lost", "abort before the reply", "flush during the copy")
ALLOCATES = ("admit", "prefill", "grow", "revisit", "finish", "retract", "wait", "quiesce")


def orders(tape: Tape, ops: dict[str, Operation], most: int = 1 << 20) -> Iterator[Outcome]:
    """Every order, as an odometer whose wheels are the choices that the run before had."""
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
    """The next script: the last wheel that can go on does, those behind it start again."""
    for at in reversed(range(len(chosen))):
        if chosen[at] + 1 < asked[at]:
            return [*chosen[:at], chosen[at] + 1]
    return None


def sweep(
    tape: Tape, ops: dict[str, Operation], ways: Sequence[str] = WAYS
) -> Iterator[tuple[str, Outcome]]:
    """(what was done, what it came to) for the k-th action and every k, then allocations."""
    plain = replay(tape, ops)
    yield "nothing fails", plain
    for number, (entry, turn) in enumerate(plain.hand.issued):
        for way in ways if entry >= 0 else ():
            made = with_fault(tape, entry, turn, way)
            yield f"action {number}: {way}", replay(made, ops)
    for at, one in enumerate(tape.entries):
        if one.op in ALLOCATES:
            yield from _starved(tape, ops, at)


def _starved(tape: Tape, ops: dict[str, Operation], at: int) -> Iterator[tuple[str, Outcome]]:
    """Entry `at` finds k pages of a component, for every k, until nothing had to be taken away."""
    for name, capacity in zip(tape.config.components, tape.config.device_pages, strict=True):
        for pages in range(capacity):
            outcome = replay(with_hold(tape, at, name, pages), ops)
            yield f"entry {at} finds {pages} pages of {name}", outcome
            if not any(FIRST <= number < RIVALS for number in outcome.hand.used):
                break


def with_fault(tape: Tape, entry: int, turn: int, fault: str) -> Tape:
    """The tape in which one action of one entry has this fault, and every other stays."""
    one = tape.entries[entry]
    acts = list(one.acts) or [PLAIN]
    acts = [acts[at % len(acts)] for at in range(max(len(acts), turn + 1))]
    acts[turn] = Act(acts[turn].delay, acts[turn].tie, fault)
    changed = one._replace(acts=tuple(acts))
    return replace(tape, entries=(*tape.entries[:entry], changed, *tape.entries[entry + 1 :]))


def with_hold(tape: Tape, at: int, component: str, pages: int) -> Tape:
    """The tape in which so many pages of a component can be had on device while one entry plays."""
    hold = Entry("hoard", {"take": True, "leave": pages, "of": component}, 0, False)
    let = Entry("hoard", {"take": False}, 0, False)
    entries = (*tape.entries[:at], hold, tape.entries[at], let, *tape.entries[at + 1 :])
    return replace(tape, entries=entries)
