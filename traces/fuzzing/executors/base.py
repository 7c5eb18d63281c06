"""Who plays sequences: a file of this folder defines `run`, which streams results as they come.

Must not live here: what a sequence is (fuzzing/work).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, cast

from hicache.core import registry
from hicache.core.errors import CallerError

from ..work import Result

EXECUTORS = "traces.fuzzing.executors"
AHEAD = 3  # sequences per worker that are handed out before their turn


class WorkerLost(AssertionError):
    """A worker died in the middle of a sequence: what came before it is kept."""

    exit_code = 17


class Results(Protocol):
    """Results as they come, in any order. `close` ends the workers: what has not begun is not
    played."""

    def __iter__(self) -> Iterator[Result]: ...

    def __next__(self) -> Result: ...

    def close(self) -> None: ...


class Executor(Protocol):
    """One way of running sequences on many cores or machines."""

    def run(self, work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> Results:
        """Every seed's result. Seeds are taken as workers come free. jobs: workers, 0 for as many
        as there are."""


def load(name: str) -> Executor:
    """Raises CallerError where what it runs on is not installed."""
    try:
        return cast(Executor, registry.load(EXECUTORS, name))
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise CallerError(
            f"--executor {name}: expected {missing} to be installed, and it is not; "
            f"pip install 'hicache[{name}]'"
        ) from None
