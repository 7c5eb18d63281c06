"""Jobs in processes, a few at a time, and the results as they are known: the one pool.

    started    with the signals blocked until it ignores them, as every worker of a command does
    done       it sent its result; it gets the next job, or is ended
    failed     it sent its error, or ended without a word; the others are killed

By default each job has a process of its own. Jobs and results go through a pipe for each process,
so nothing is shared that a process could spoil or leave locked. A process is killed by SIGKILL
only. SIGTERM does not always end a process that was just forked: Python forgets a signal that
arrives before the new process has run its first lines. Does not know what a job is.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from hicache.core.errors import CallerError

from .workers import deferring_signals, environment, how_ended, ignore_signals

_POLL_S = 0.2  # how late `watch` and Ctrl-C may be
_PATIENCE_S = 5.0  # for the end of a process that has nothing to do, or is gone

Job = TypeVar("Job")
Done = TypeVar("Done")


class JobFailed(Exception):
    """A job ended with an error; the text is its traceback. The cause of the error, if that could
    be sent."""


class WorkerLost(AssertionError):
    """A process ended without a result. Results that arrived before are kept."""

    exit_code = 17


@dataclass(slots=True)
class _Running(Generic[Job]):
    process: BaseProcess
    pipe: connection.Connection
    job: Job


def _lost(job: object, open_jobs: int, how: str) -> str:
    return f"a worker was lost: {how}; if memory ran out, give fewer --jobs"


def results(
    context: ForkContext | SpawnContext,
    work: Callable[[Job], Done],
    jobs: Iterable[Job],
    most: int,
    *,
    start: Callable[[], None] = ignore_signals,
    watch: Callable[[], None] = lambda: None,
    keep: bool = False,
    settings: Callable[[int], dict[str, str]] = lambda number: {},
    lost: Callable[[Any, int, str], str] = _lost,
) -> Generator[Done]:
    """The results in any order. Raises what the first job raised that failed.

    most: processes at a time. start: called first in each. watch: called here from time to time.
    keep: a process does many jobs and keeps what it has read. settings: environment variables of
    each process, by its number. lost: the text of WorkerLost, from the oldest job under way, the
    number of those, and how the process ended.
    """
    waiting, numbers = iter(jobs), count()
    running: list[_Running[Job]] = []
    try:
        while True:
            for job in islice(waiting, most - len(running)):
                try:
                    with deferring_signals(), environment(**settings(next(numbers))):
                        running.append(_started(context, start, work, job, keep))
                except OSError as error:
                    raise CallerError(
                        f"--jobs {most}: expected that worker processes can be started, found: "
                        f"{error.strerror or error}; give --jobs 1"
                    ) from None
            if not running:
                return
            done = connection.wait([one.pipe for one in running], _POLL_S)
            watch()
            for one in [each for each in running if each.pipe in done]:
                oldest, open_jobs = running[0].job, len(running)
                try:
                    kind, answer = one.pipe.recv()
                except (EOFError, OSError):
                    one.process.join(_PATIENCE_S)
                    how = how_ended([one.process])
                    raise WorkerLost(lost(oldest, open_jobs, how)) from None
                if kind == "failed":
                    raise _failure(*answer)
                following = list(islice(waiting, 1)) if keep else []
                for job in following:
                    one.job = job
                    running.append(one)  # before it is removed, so that an interrupt finds it
                    with suppress(BrokenPipeError):  # it is lost, which the next round finds
                        one.pipe.send((work, job))
                if not following:
                    _end(one, _PATIENCE_S if keep else 0.0)
                running.remove(one)
                yield answer
    finally:
        for one in running:
            _end(one)


def _started(
    context: ForkContext | SpawnContext,
    start: Callable[[], None],
    work: Callable[[Job], Done],
    job: Job,
    keep: bool,
) -> _Running[Job]:
    mine, theirs = context.Pipe()
    process = context.Process(target=_run, args=(start, work, job, theirs, keep), daemon=True)
    process.start()
    theirs.close()
    return _Running(process, mine, job)


def _run(
    start: Callable[[], None],
    work: Callable[[Job], Done],
    job: Job,
    pipe: connection.Connection,
    keep: bool,
) -> None:
    """Runs in the process."""
    start()
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        while True:
            try:
                pipe.send(("done", work(job)))
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:
                pipe.send(("failed", (_sendable(error), traceback.format_exc())))
            if not keep:
                return
            work, job = pipe.recv()


def _sendable(error: Exception) -> Exception | None:
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301  # its own
    except Exception:
        return None
    return copy


def _failure(error: Exception | None, text: str) -> Exception:
    told = JobFailed(text)
    if error is None:
        return told
    error.__cause__ = told
    return error


def _end(one: _Running[Any], patience_s: float = 0.0) -> None:
    """Ends a process: at once, or first by telling it that there is no other job."""
    if patience_s:
        one.pipe.close()
        one.process.join(patience_s)
    one.process.kill()
    one.process.join()
    one.pipe.close()
