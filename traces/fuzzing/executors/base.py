"""The interface of executors. An executor is one file of this folder that defines `run`.

`run` plays sequences and returns their results as they arrive. Does not define a sequence; see
work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, cast

from hicache.core import registry
from hicache.core.errors import CallerError

from ..work import Result

EXECUTORS = "traces.fuzzing.executors"
AHEAD = 3  # sequences that are queued for each worker


class WorkerLost(AssertionError):
    """A worker died during a sequence. Results that arrived before are kept."""

    exit_code = 17


class Results(Protocol):
    """Results as they arrive, in any order.

    `close` ends the workers at once, also those that are within a sequence.
    """

    def __iter__(self) -> Iterator[Result]: ...

    def __next__(self) -> Result: ...

    def close(self) -> None: ...


class Executor(Protocol):
    """One way to run sequences on several cores or machines."""

    def run(self, work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> Results:
        """Yields the result of every seed. A worker takes the next seed when it is free.

        jobs: number of workers, 0 for one on each core.
        """


def load(name: str) -> Executor:
    """The executor of that name. Raises CallerError if a package that it needs is missing."""
    try:
        return cast(Executor, registry.load(EXECUTORS, name))
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise CallerError(
            f"--executor {name}: expected {missing} to be installed, and it is not; "
            f"install it (in a clone: .venv/bin/pip install -e '.[{name}]')"
        ) from None
