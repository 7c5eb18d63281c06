"""Records a replay: every event with its entry and time, and all changes that it made.

Lives here: storing the recording. Does not detect changes (see instruments) or select those that
explain a failure (see explain).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView

from ..fuzz import play
from ..fuzz.hand import Hand
from ..fuzz.ops.base import Operation
from ..fuzz.tapes.tape import Tape
from ..source_lines import Call, calls
from .instruments import Change, instruments


@dataclass
class Step:
    """One event. number: of the event, from 1. entry: the entry of the tape that caused it, from 1;
    0 after the last one. now: virtual time. pools: pages per state after it, by (tier, component).
    """

    number: int
    entry: int
    now: int
    event: Event
    outcomes: list[Outcome] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    pools: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Account:
    """A replay and its recording."""

    outcome: play.Outcome
    steps: list[Step]


class Recorder:
    """Observes the core of a hand."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.hand: Hand | None = None
        self.answering = False  # whether the core is handling an event

    def follow(self, hand: Hand) -> None:
        self.hand = hand
        hand.observe(self)

    def on_event(self, event: Event, view: CoreView) -> None:
        assert self.hand is not None
        number, entry = len(self.steps) + 1, self.hand.entry + 1
        for one in self.steps[-1:]:
            one.calls.clear()
        self.steps.append(Step(number, entry, self.hand.now, event))
        self.answering = True

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.answering = False
        step = self.steps[-1]
        step.outcomes = list(outcomes)
        for tier in (Tier.DEVICE, Tier.HOST):
            for pool in view.pools(tier):
                step.pools[int(tier), pool.component] = tuple(pool.counts)

    def report(self, change: Change) -> None:
        """Stores a change of the observed core; other ranks repeat it later."""
        if self.answering:
            self.steps[-1].changes.append(change)

    def called(self, call: Call) -> None:
        """Stores a call; only those of the last event are kept."""
        if self.answering:
            self.steps[-1].calls.append(call)


def recorded(
    tape: Tape,
    ops: dict[str, Operation],
    name: str = "",
    checks: Sequence[str] | None = None,
) -> Account:
    """Plays a tape like `play.replay` and records everything."""
    recorder = Recorder()
    instrumented = instruments(recorder.report, tape.config.components)
    with instrumented, calls(recorder.called):
        outcome = play.replay(tape, ops, name=name, checks=checks, follow=recorder.follow)
    return Account(outcome, recorder.steps)
