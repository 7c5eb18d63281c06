"""The processes that hunt mutants, and their limits: time and memory.

Does not hunt (see fresh_work and planted_work), and has no options or output (see
commands/mutants).
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from invariants.mutants.sources import Endless

from ..terminal.processes import results
from ..terminal.signals import alarm
from ..terminal.workers import ignore_signals

SEQUENCE_S = 10.0  # far more than the longest sequence takes; a longer one counts as endless
MEMORY_BYTES = 4 << 30  # beside what the process had when it was forked

Job = TypeVar("Job")
Done = TypeVar("Done")


def time_limit(seconds: float = SEQUENCE_S) -> AbstractContextManager[None]:
    """Raises Endless in a block that computes for longer than `seconds`."""
    return alarm(seconds, Endless(f"more than {seconds:.0f} s of computing"))


def each(work: Callable[[Job], Done], jobs: Sequence[Job], processes: int) -> Iterator[Done]:
    """Yields the result of each job as it is known.

    A process does one job, so a bug that spoils what the process keeps does not reach the next, nor
    this one. It has what this one has, since it is forked.
    """
    return results(get_context("fork"), work, jobs, processes, start=_limited)


def _limited() -> None:
    """A mutant that allocates without end crashes."""
    ignore_signals()
    most = MEMORY_BYTES + _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _address_space_bytes() -> int:
    """What this process has now, libraries such as torch included; 0 where nothing says so."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
