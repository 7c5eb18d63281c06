"""Jobs on the cores of this machine (`local`, processes) or on a Ray cluster (`ray`), and their
results as they arrive, in any order.

A worker does many jobs and keeps what it has read. Closing the results ends the workers at once,
also those that are within a job. Every machine of a cluster needs the same version of this project,
and the files that a job names.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from hicache.core.errors import CallerError

from .terminal import signals
from .terminal.options import library

LOCAL = "local"
_POLL_S = 0.2  # how late Ctrl-C may be
_AHEAD = 2  # jobs that each worker of a cluster has
_work: list[Callable[[Any], Any]] = []  # of a worker process

Job = TypeVar("Job")
Done = TypeVar("Done")


class JobFailed(Exception):
    """A job ended with an error that cannot be sent; the text is its traceback."""


class WorkerLost(AssertionError):
    """A worker ended without a result. Results that arrived before are kept."""

    exit_code = 17


@dataclass(frozen=True)
class JobOptions:
    """lost: the message for a lost worker, from the oldest job under way, how many are under way,
    and how the worker ended. hash_seed: of the first process, each further one has another; None
    leaves it to Python. forked: on Linux, workers begin with all that the command has read."""

    lost: Callable[[Any, int, str], str]
    hash_seed: int | None = None
    forked: bool = False


def run(
    name: str, workers: int, work: Callable[[Job], Done], jobs: Iterable[Job], options: JobOptions
) -> Generator[Done]:
    """The result of every job, from the executor of that name. workers: 0 for one on each core. An
    exception of `work` is raised here; WorkerLost if a worker is gone."""
    return EXECUTORS[name](work, iter(jobs), workers, options)


def _local(
    work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
) -> Generator[Done]:
    workers = workers or signals.cores()
    if workers == 1:
        yield from map(work, jobs)
        return
    started: set[BaseProcess] = set()
    under_way: dict[Future[Done], Job] = {}
    context = get_context("fork" if options.forked and sys.platform == "linux" else "spawn")
    with _starting(workers):
        pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(work,))
    try:
        while True:
            for job in islice(jobs, workers - len(under_way)):
                seed = {}
                if options.hash_seed is not None:
                    number = (options.hash_seed + len(started)) % signals.MOST_HASH_SEED
                    seed["PYTHONHASHSEED"] = str(number)
                with _starting(workers), signals.deferring_signals(), signals.environment(**seed):
                    under_way[pool.submit(_called, job)] = job
                    started |= {*pool._processes.values()}  # also one that is gone by now
            if not under_way:
                return
            done, _ = wait(under_way, _POLL_S, FIRST_COMPLETED)
            for future in [each for each in under_way if each in done]:
                oldest, open_jobs = next(iter(under_way.values())), len(under_way)
                del under_way[future]
                yield future.result()
    except BrokenProcessPool:
        ended = connection.wait([process.sentinel for process in started], 0)
        gone = [process for process in started if process.sentinel in ended]
        _end(pool, started)  # the pool's own thread takes the exit codes
        raise WorkerLost(options.lost(oldest, open_jobs, signals.how_ended(gone))) from None
    finally:
        _end(pool, started)


@contextmanager
def _starting(workers: int) -> Iterator[None]:
    """Raises CallerError where no process starts, or there is no `/dev/shm` for its locks."""
    try:
        yield
    except OSError as error:
        raise CallerError(
            f"--jobs {workers}: expected that worker processes can be started, found: "
            f"{error.strerror or error}; give --jobs 1"
        ) from None


def _end(pool: ProcessPoolExecutor, processes: Iterable[BaseProcess]) -> None:
    for process in processes:
        process.kill()  # they ignore every other signal
    pool.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    """Runs first in a process."""
    signals.ignore_signals()
    _work.append(work)


def _called(job: Any) -> Any:
    try:
        return _work[0](job)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  # its own
        except Exception:
            raise JobFailed(traceback.format_exc()) from None
        raise


def _ray(
    work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
) -> Generator[Done]:
    """On the cluster of RAY_ADDRESS, or on this machine's cores if there is none."""
    ray = library("ray", "ray")
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=True)
    do = ray.remote(_do)
    workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    under_way: dict[Any, Job] = {}
    try:
        while True:
            wanted = max(0, _AHEAD * workers - len(under_way))
            under_way |= {do.remote(work, job): job for job in islice(jobs, wanted)}
            if not under_way:
                return
            done, _ = ray.wait(list(under_way), num_returns=1, timeout=_POLL_S)
            for task in done:
                job, open_jobs = under_way.pop(task), len(under_way) + 1
                try:
                    yield ray.get(task)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except ray.exceptions.RayError as error:
                    message = (str(error).strip().splitlines() or ["no message"])[-1]
                    how = f"the cluster says: {message}"
                    raise WorkerLost(options.lost(job, open_jobs, how)) from None
    finally:
        for task in under_way:
            ray.cancel(task, force=True)
        ray.shutdown()


def _do(work: Callable[[Job], Done], job: Job) -> Done:
    return work(job)


EXECUTORS: dict[str, Callable[..., Generator[Any]]] = {LOCAL: _local, "ray": _ray}
