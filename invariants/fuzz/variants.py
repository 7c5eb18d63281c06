"""Plays the variants of a sequence that was clean: its twins, and every transfer failing in turn.

Lives here: which variants there are, and what each of them found. Does not make twins (see twins)
or faults (see faults). Each outcome has the tape that repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hicache.core.actions import Backup, Load
from invariants.watch import Level

from . import twins
from .exhaustive import with_fault
from .ops.base import Operation
from .play import Outcome, compared, replay

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
