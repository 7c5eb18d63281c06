"""What workers that hunt share: how much time and memory one may take.

Lives here: the limits, and what became of a mutant. Must not live here: the hunts (generic_work,
planted_work), or options and words (commands/mutants).
"""

from __future__ import annotations

import resource
import signal
from contextlib import AbstractContextManager
from dataclasses import dataclass

from invariants.mutants.score import Hunt
from invariants.mutants.steps import Endless

from ..terminal.alarm import alarm
from ..terminal.workers import exit_with_parent

SEQUENCE_S = 10.0  # many times what the longest sequence takes: then it is endless
MEMORY = 4 << 30


@dataclass(frozen=True)
class Killed:
    """What became of a mutant."""

    hunt: Hunt
    seconds: float


def limited(seconds: float = SEQUENCE_S) -> AbstractContextManager[None]:
    """Raises Endless into a block that takes longer."""
    return alarm(seconds, Endless(f"more than {seconds:.0f} s"))


def bounded() -> None:
    """Of a worker: what eats memory without end crashes instead; Ctrl-C is the parent's to take,
    and the parent's end is its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # with which the pool ends its workers
    exit_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
