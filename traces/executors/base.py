"""The interface of executors. An executor is one file of this folder that defines `run`.

`run` does jobs on several cores or machines and returns their results as they arrive. Does not know
what a job is; see fuzzing/work and sweeping/work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from hicache import registry

from ..terminal.options import not_installed
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import print_error
from ..terminal.workers import cores

EXECUTORS = "traces.executors"
LOCAL = "local"

Job = TypeVar("Job")
Done = TypeVar("Done")
_Done = TypeVar("_Done", covariant=True)


class Results(Protocol, Generic[_Done]):
    """Results as they arrive, in any order.

    `close` ends the workers at once, also those that are within a job.
    """

    def __iter__(self) -> Iterator[_Done]: ...

    def __next__(self) -> _Done: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class JobOptions:
    """How jobs are handed out.

    lost: the message for a lost worker, from a job that was under way, the number of jobs under
    way, and how the worker ended. ahead: jobs that are queued for each worker of a cluster.
    hash_seed: of the first worker, each further one has the next; None leaves it to Python. watch:
    called from time to time in the process of the command, while workers are at work. forked: where
    the system allows it, workers begin with all that the command has read.
    """

    lost: Callable[[Any, int, str], str]
    ahead: int = 3
    hash_seed: int | None = None
    watch: Callable[[], None] = lambda: None
    forked: bool = False


class Executor(Protocol):
    """One way to do jobs on several cores or machines."""

    def run(
        self, work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
    ) -> Results[Done]:
        """Yields the result of every job. A worker takes the next job when it is free.

        workers: how many, 0 for one on each core. An exception of `work` is raised here.
        """


def load(name: str) -> Executor:
    """The executor of that name. Raises CallerError if a package that it needs is missing."""
    try:
        return cast(Executor, registry.load(EXECUTORS, name))
    except ModuleNotFoundError as error:
        raise not_installed(f"--executor {name}", name, error) from None


def workers(name: str, asked: int, jobs: int) -> int:
    """How many workers `run` of that executor is given for so many jobs. asked: 0 for one on each
    core; other executors than the local one decide that themselves."""
    return min(asked or cores(), jobs) or 1 if name == LOCAL else asked


def run(
    name: str, asked: int, work: Callable[[Job], Done], jobs: Sequence[Job], options: JobOptions
) -> Iterator[Done]:
    """The results of these jobs from the executor of that name, as they arrive. asked: as for
    `workers`. Closing the iterator ends the workers at once."""
    count = workers(name, asked, len(jobs))
    with closing(load(name).run(work, iter(jobs), count, options)) as results:
        yield from results


def lost_within(job: str, open_jobs: int, how_ended: str) -> str:
    """The message for a lost worker where results are kept. job: words for one under way."""
    others = f" and {open_jobs - 1} others" if open_jobs > 1 else ""
    return (
        f"a worker was lost within {job}{others}: {how_ended}; what is done is kept, and --jobs 1 "
        "does the rest in one process"
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run that keeps what is done came to its end. code: the exit code. error: what ended it
    before all was done, other than Ctrl-C."""

    code: int
    error: Exception | None

    def ended(self) -> int:
        """The exit code; raises the error. Call it when what is done was shown."""
        if self.error is not None:
            raise self.error
        return self.code


def finish(
    done: dict[Any, Done],
    total: int,
    things: str,
    kept: bool,
    progress: AbstractContextManager[Callable[[int], None]],
    results: Callable[[Callable[[int], None]], Iterator[tuple[Any, Done]]],
) -> Ended:
    """Adds results to `done` as they arrive, until all of `total` are there, and says how far it
    came. things: what they are, in words. kept: whether a file keeps them. results: gets what shows
    the progress."""
    if done and len(done) < total:
        print_error(f"{len(done)} of {total} {things} are done already")
    code, error = 0, None
    with progress as shown:
        try:
            done.update(results(shown))
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Exception as raised:  # what is done is shown before it is raised again
            error = raised
    if len(done) < total:
        again = "; the same command does the rest" if kept else ""
        why = "interrupted: " if code else ""
        print_error(f"{why}{len(done)} of {total} {things} are done{again}")
    return Ended(code, error)
