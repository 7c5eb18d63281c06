"""Tapes for hunting mutants: the lines that each runs, its length, and the core's decisions.

Lives here: playing a tape with a record, and the survey that a hunt is based on. Does not define
mutants (see mutate), the order of tapes in a hunt (see score), or where tapes come from.

The record hashes every outcome and the pool counts after every event. Two cores have the same
digest for a tape if and only if all of this was the same.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib import import_module
from types import FrameType
from typing import Any

from hicache.core.actions import Outcome as Said
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.decisions import Decisions
from invariants.watch import Level

from ..fuzz.executors import REPLIES
from ..fuzz.exhaustive import ALLOCATES, WAYS, with_fault, with_hold
from ..fuzz.generate import weights_of
from ..fuzz.ops.base import load
from ..fuzz.play import Outcome, generate, replay
from ..fuzz.swarm import draw_swarm
from ..fuzz.tapes.tape import Tape
from .mutate import modules
from .steps import Steps, limited

VIEW = "hicache.core.view"
NOTE = "decisions"  # note of a tape: its digest on this version of the core
_FILE = 1 << 14  # upper bound of the lines of a file
_OPS = load()
_WEIGHTS = weights_of(_OPS)


class Record:
    """Observes one core. digest: of everything so far."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._decisions = Decisions()
        self._pools = blake2b(digest_size=16)

    def on_event(self, event: Event, view: CoreView) -> None:
        self._steps()

    def on_outcomes(self, event: Event, outcomes: Sequence[Said], view: CoreView) -> None:
        self._decisions.add(outcomes)
        left = [
            (*pool.counts, pool.protected)
            for tier in (Tier.DEVICE, Tier.HOST)
            for pool in view.pools(tier)
        ]
        self._pools.update(repr((left, view.tick)).encode())

    def digest(self) -> str:
        both = self._decisions.digest() + self._pools.hexdigest()
        return blake2b(both.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Ground:
    """A tape that the unchanged core plays without failure. lines: lines of the core that it runs.
    states: named states that it reaches (see probes). steps, digest: of the unchanged core.
    """

    tape: Tape
    lines: frozenset[int]
    states: frozenset[str]
    steps: int
    events: int
    digest: str

    @property
    def most(self) -> int:
        """Number of steps after which a run counts as endless."""
        return 20 * self.steps + 10_000

    def runs(self, module: str, lines: tuple[int, int]) -> bool:
        """Whether it runs any of these lines. Lines of the view count as run, because observers
        call them.
        """
        if module == VIEW:
            return True
        return not self.lines.isdisjoint(numbers_of(modules(), module, lines))


def numbers_of(names: Sequence[str], module: str, lines: tuple[int, int]) -> range:
    """The numbers of a module's lines among those of all modules."""
    first = names.index(module) * _FILE
    return range(first + lines[0], first + lines[1] + 1)


def play(tape: Tape, most: int = 1 << 62, checked: bool = True) -> tuple[Outcome, str, int]:
    """Plays a tape. Returns its outcome, digest and number of steps. Raises Endless after `most`
    steps.
    """
    steps = Steps(most)
    record = Record(steps)
    with limited(steps):
        level: Level = "every" if checked else "off"
        outcome = replay(tape, _OPS, level, follow=lambda hand: hand.observe(record))
    return outcome, record.digest(), steps.count


def survey(tapes: Iterable[Tape]) -> Iterator[Ground]:
    """Yields a Ground for each tape that the unchanged core plays without failure."""
    for tape in tapes:
        with noted_lines(modules()) as lines:
            outcome, digest, steps = play(tape, checked=False)
        if outcome.failure is None:
            hand = outcome.hand
            reached = {**hand.probes.seen, **hand.counts}
            states = frozenset(name for name, times in reached.items() if times)
            yield Ground(tape, frozenset(lines), states, steps, hand.events, digest)


def chosen(grounds: Iterable[Ground], each: int) -> list[Ground]:
    """Returns the shortest tapes, so that each line and each state is covered by `each` tapes if
    possible.
    """
    kept: list[Ground] = []
    count: Counter[int | str] = Counter()
    for ground in sorted(grounds, key=lambda one: one.events):
        found: tuple[int | str, ...] = (*ground.lines, *ground.states)
        if any(count[one] < each for one in found):
            kept.append(ground)
            count.update(found)
    return kept


def drawn(seeds: Iterable[int], operations: int) -> Iterator[Tape]:
    """Yields the drawn tapes of these seeds."""
    for seed in seeds:
        yield generate(
            draw_swarm(seed, _WEIGHTS, ranks=1, executor=REPLIES), _OPS, seed, operations, "off"
        ).tape


def varied(tape: Tape, every: int = 1) -> Iterator[Tape]:
    """Yields the tape with each action failing and each allocation refused; `every`: only each n-th
    of these.
    """
    made = [
        with_fault(tape, entry, turn, way)
        for entry, turn, _ in replay(tape, _OPS, "off").hand.issued
        if entry >= 0
        for way in WAYS
    ]
    made += [
        with_hold(tape, at, name, 0)
        for at, one in enumerate(tape.entries)
        if one.op in ALLOCATES
        for name in tape.config.components
    ]
    yield from made[::every]


def noted(tape: Tape, **notes: str) -> Tape:
    """Returns the tape with additional notes."""
    return replace(tape, notes={**tape.notes, **notes})


@contextmanager
def noted_lines(names: Sequence[str]) -> Iterator[set[int]]:
    """Collects the lines of these modules that run within the block (see `numbers_of`)."""
    lines: set[int] = set()
    files = {str(import_module(name).__file__): at * _FILE for at, name in enumerate(names)}

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        first = files.get(frame.f_code.co_filename)
        if first is None:
            return None

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            lines.add(first + frame.f_lineno)
            return line

        return line(frame, event, arg)

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield lines
    finally:
        sys.settrace(before)
