"""One process for each job, a few at a time, and the results as they are known.

    started    with the signals blocked until it ignores them, as every worker of a command does
    done       it sent its result; it is killed, since nothing else is wanted of it
    failed     it sent the text of its error, or ended without a word; the others are killed

A process is ended by SIGKILL only. SIGTERM does not always end a process that was just forked:
Python forgets a signal that arrives before the new process has run its first lines. Does not know
what a job is.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from hicache.core.errors import CallerError

from .workers import deferring_signals, how_ended, ignore_signals

_POLL_S = 0.3
_PATIENCE_S = 5.0  # for the exit code of a process that is gone

Job = TypeVar("Job")
Done = TypeVar("Done")


class JobFailed(Exception):
    """A job ended with an error that is not the caller's; the text is its traceback."""


class ProcessLost(AssertionError):
    """A process ended without a result. Results that arrived before are kept."""

    exit_code = 17


@dataclass(frozen=True, slots=True)
class _Running:
    process: BaseProcess
    answers: connection.Connection


def results(
    context: ForkContext | SpawnContext,
    work: Callable[[Job], Done],
    jobs: Iterable[Job],
    most: int,
    *,
    start: Callable[[], None] = ignore_signals,
    watch: Callable[[], None] = lambda: None,
) -> Iterator[Done]:
    """The results in any order. Raises what the first job raised that failed.

    most: processes at a time. start: called first in each. watch: called here from time to time.
    """
    waiting = iter(jobs)
    running: list[_Running] = []
    try:
        while True:
            for job in islice(waiting, most - len(running)):
                with deferring_signals():
                    running.append(_started(context, start, work, job))
            if not running:
                return
            done = connection.wait([one.answers for one in running], _POLL_S)
            watch()
            for one in [each for each in running if each.answers in done]:
                answer = _answer(one)
                running.remove(one)
                _end(one)
                yield answer
    finally:
        for one in running:
            _end(one)


def _started(
    context: ForkContext | SpawnContext,
    start: Callable[[], None],
    work: Callable[[Job], Done],
    job: Job,
) -> _Running:
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(start, work, job, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Running(process, mine)


def _run(
    start: Callable[[], None],
    work: Callable[[Job], Done],
    job: Job,
    answers: connection.Connection,
) -> None:
    """Runs in the process."""
    start()
    answer: tuple[str, object]
    try:
        answer = ("done", work(job))
    except CallerError as error:
        answer = ("bad input", str(error))
    except Exception:
        answer = ("failed", traceback.format_exc())
    with suppress(BrokenPipeError):
        answers.send(answer)


def _answer(one: _Running) -> Any:
    try:
        kind, answer = one.answers.recv()
    except (EOFError, OSError):
        one.process.join(_PATIENCE_S)
        raise ProcessLost(
            f"a worker was lost: {how_ended([one.process])}; if memory ran out, give fewer --jobs"
        ) from None
    if kind == "done":
        return answer
    raise CallerError(answer) if kind == "bad input" else JobFailed(answer)


def _end(one: _Running) -> None:
    one.process.kill()
    one.process.join()
    one.answers.close()
