"""What a bug does that nothing noticed: how often its line runs, and whether decisions differ.

The same tapes are played with and without the bug, without checks. Decisions are compared twice: as
they are, and with page numbers aside, as the specification compares them. Does not judge (see
judging).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np

from hicache.core.actions import Outcome, StateSlots
from hicache.core.events import Event
from hicache.core.view import CoreView

from ..fuzz.hand import Hand
from ..fuzz.play import generate, replay
from ..fuzz.swarm import draw_swarm
from ..fuzz.tapes.tape import Tape
from ..mutants import decisions, sources
from ..mutants.sources import Endless, Guard, Steps, limited, unguarded
from .judging import ENDLESS, OPERATIONS, OPS, WEIGHTS
from .planting import Bug, planted

Digests = tuple[str, str]


@dataclass(frozen=True)
class Traces:
    """What a survivor does. reached: of the compared sequences, how many run an edited line;
    differs: in how many the decisions are other than without the bug; beside_pages: in how many
    they are so with page numbers aside.
    """

    compared: int
    reached: int
    differs: int
    beside_pages: int


def traces(bug: Bug, tapes: Iterable[Tape], guard: Guard = unguarded) -> Traces:
    """Plays tapes with and without the bug, and compares the decisions."""
    compared = reached = differs = beside_pages = 0
    for tape in tapes:
        with _noted(bug) as ran:
            before, steps = _played(tape, 1 << 62)
        compared += 1
        if not ran:
            continue
        reached += 1
        with planted(bug):
            after = _digests(tape, 20 * steps + 10_000, guard)
        differs += after != before
        beside_pages += after[1] != before[1]
    return Traces(compared, reached, differs, beside_pages)


def drawn_tapes(drawn: Iterable[int], count: int) -> Iterator[Tape]:
    """The tapes of the first `count` seeds, as the core without a bug plays them."""
    for seed in islice(drawn, count):
        yield generate(draw_swarm(seed, WEIGHTS), OPS, seed, OPERATIONS, "off").tape


def _digests(tape: Tape, most: int, guard: Guard) -> Digests:
    try:
        with guard():
            return _played(tape, most)[0]
    except Endless:
        return ENDLESS, ENDLESS
    except Exception as error:
        return type(error).__name__, type(error).__name__


def _played(tape: Tape, most: int) -> tuple[Digests, int]:
    """Plays a tape. Returns the digests of all decisions and the steps; raises Endless."""
    steps = Steps(most)
    record, shapes = decisions.Record(steps), _Shapes()

    def follow(hand: Hand) -> None:
        hand.observe(record)
        hand.observe(shapes)

    with limited(steps):
        outcome = replay(tape, OPS, "off", follow=follow)
    failed = "" if outcome.failure is None else outcome.failure.kind
    return (record.digest() + failed, shapes.digest() + failed), steps.count


class _Shapes:
    """Observes the outcomes of one core, with page numbers aside."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: only outcomes count."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._hash.update(repr([_without_pages(one) for one in outcomes]).encode())

    def digest(self) -> str:
        return self._hash.hexdigest()


def _without_pages(value: Any) -> object:
    """A value of an outcome, with the number of pages for pages."""
    if isinstance(value, np.ndarray):
        return len(value)
    if isinstance(value, StateSlots):
        slots = (value.source, value.working, *value.checkpoint_slots)
        depths = [depth for depth, _ in value.checkpoints]
        return value.component, [slot >= 0 for slot in slots], value.interval, depths
    if isinstance(value, tuple | list):
        return type(value).__name__, [_without_pages(one) for one in value]
    return value


@contextmanager
def _noted(bug: Bug) -> Iterator[set[int]]:
    """Collects the edited lines of the function that run within the block."""
    code = sources.functions(bug.module)[bug.place].__code__
    wanted = {line for first, last in bug.lines for line in range(first, last + 1)}
    ran: set[int] = set()

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        return line if frame.f_code is code else None

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_lineno in wanted:
            ran.add(frame.f_lineno)
        return line

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield ran
    finally:
        sys.settrace(before)
