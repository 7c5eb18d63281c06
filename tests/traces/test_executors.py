"""Jobs in processes: all ends of a worker, and of the command that started it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from traces.executors import JobFailed, JobOptions, WorkerLost, run
from traces.terminal.signals import ENDS, interruptible

from .rig import ROOT, Patch, python

pytestmark = pytest.mark.usefixtures("here")

HUNT = ("fuzz", "--sequences", "4", "--operations", "25", "--seed", "7", "--jobs", "2")


def results(work: Callable[[int], Any], jobs: range, workers: int = 2) -> Any:
    options = JobOptions(lambda job, count, how: f"{job}, {count}: {how}", forked=True)
    return run("local", workers, work, jobs, options)


def test_each_result_comes_once_from_few_workers() -> None:
    for workers in (1, 2, 5):
        assert sorted(results(lambda job: job * 2, range(4), workers)) == [0, 2, 4, 6]
    assert list(results(abs, range(0))) == []
    places = list(results(lambda job: os.getpid(), range(9)))
    assert len({*places, os.getpid()}) <= 3
    assert len(places) == 9
    assert not active_children()


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os._exit(7), "it ended with exit code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"it was ended by signal 9 \(SIGKILL\)"),
    ],
)
def test_a_lost_worker_is_an_error_that_names_a_job(end: Callable[[], None], how: str) -> None:
    def work(job: int) -> int:
        if job == 2:
            end()
        return job

    with pytest.raises(WorkerLost, match=rf"^\d, [12]: {how}"):
        list(results(work, range(1, 9)))
    assert not active_children()


def test_errors_arrive_as_what_they_are_or_as_their_text() -> None:
    """And they end the other jobs."""

    class Own(Exception):
        pass

    def bad(job: int) -> None:
        raise CallerError("expected one, found two")

    def own(job: int) -> None:
        if job:
            time.sleep(600)
        raise Own("told")

    with pytest.raises(CallerError, match=r"^expected one, found two$"):
        list(results(bad, range(2)))
    with pytest.raises(JobFailed, match="Own: told") as caught:
        list(results(own, range(2)))
    assert "in own\n" in str(caught.value.__cause__)
    assert not active_children()


def test_who_takes_no_more_results_ends_the_workers() -> None:
    def work(job: int) -> int:
        if job:
            time.sleep(600)
        return job

    with closing(results(work, range(3))) as found:
        assert next(found) == 0
        assert active_children()
    assert not active_children()


def test_a_signal_while_workers_start_leaves_none(monkeypatch: Patch) -> None:
    class Interrupted(JobOptions):
        def __getattribute__(self, name: str) -> Any:
            if name == "hash_seed":  # is read within the block that starts a process
                os.kill(os.getpid(), signal.SIGTERM)
            return super().__getattribute__(name)

    before = {end: signal.getsignal(end) for end in ENDS}
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            list(run("local", 2, time.sleep, [600, 600], Interrupted(str, forked=True)))
    finally:  # an interrupted command keeps its handlers until it exits
        for end, handler in before.items():
            signal.signal(end, handler)
    assert not active_children()


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    "sent",
    [
        "os.kill(os.getpid(), signal.SIGINT)",
        # as when the system gives the signal to another thread of the process
        "signal.getsignal(signal.SIGINT)(signal.SIGINT, None)",
    ],
)
def test_an_interrupt_while_the_command_waits_for_workers_ends_it(sent: str) -> None:
    Path("program.py").write_text(
        f"""
import os, signal, sys
from traces import executors
from traces.cli import main
wait = executors.wait
def interrupted(*given):
    {sent}
    return wait(*given)
executors.wait = interrupted
if __name__ == "__main__":
    sys.exit(main({HUNT!r}))
"""
    )
    done = python("program.py", cwd=Path(), env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (130, "hicache: interrupted; found so far:\n")
