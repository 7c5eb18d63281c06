"""The decisions of a core on a tape, as a digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from hicache.core.actions import Outcome as Said
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.decisions import Decisions
from invariants.watch import Level

from ..fuzz.generate import weights_of
from ..fuzz.ops.base import load
from ..fuzz.play import Outcome, replay
from ..fuzz.tapes.tape import Tape
from .sources import Steps, limited

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


def noted(tape: Tape, **notes: str) -> Tape:
    """Returns the tape with additional notes."""
    return replace(tape, notes={**tape.notes, **notes})
