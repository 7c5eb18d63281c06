"""Limits of the worker processes that hunt mutants: time and memory. Also the result of one mutant.

Does not hunt (see generic_work and planted_work), and has no options or output (see
commands/mutants).
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

SEQUENCE_S = 10.0  # far more than the longest sequence takes; a longer one counts as endless
MEMORY_BYTES = 4 << 30


@dataclass(frozen=True)
class TimedHunt:
    """The hunt for one mutant, and the seconds that it took."""

    hunt: Hunt
    seconds: float


def time_limit(seconds: float = SEQUENCE_S) -> AbstractContextManager[None]:
    """Raises Endless in a block that takes longer than `seconds`."""
    return alarm(seconds, Endless(f"more than {seconds:.0f} s"))


def start_worker() -> None:
    """Initialises a worker: limits its memory, and leaves Ctrl-C to the parent.

    A mutant that allocates without end crashes. The worker exits when its parent is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the pool ends its workers with it
    exit_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
