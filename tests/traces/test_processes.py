"""One process for each job: all ends of a process, and of the command that started it."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import active_children, get_context

import pytest

from hicache.core.errors import CallerError
from traces.terminal.processes import JobFailed, WorkerLost, results
from traces.terminal.signals import ENDS, interruptible

from .rig import Patch

FORK = get_context("fork")


def test_each_result_comes_once_also_with_more_processes_than_jobs() -> None:
    for most in (1, 2, 5):
        assert sorted(results(FORK, lambda job: job * 2, range(4), most)) == [0, 2, 4, 6]
    assert list(results(FORK, abs, (), 2)) == []
    assert not active_children()


def test_a_job_is_alone_in_its_process() -> None:
    found = list(results(FORK, lambda _: os.getpid(), range(3), 2))
    assert len({*found, os.getpid()}) == 4


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os._exit(7), "it ended with exit code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"it was ended by signal 9 \(SIGKILL\)"),
    ],
)
def test_a_lost_process_is_an_error_that_says_how_it_ended(end: object, how: str) -> None:
    def work(job: int) -> int:
        if job == 2:
            assert callable(end)
            end()
        return job

    found = []
    with pytest.raises(WorkerLost, match=how):
        found.extend(results(FORK, work, range(1, 9), 2))
    assert not active_children()


def test_an_error_of_a_job_ends_the_others() -> None:
    def work(job: int) -> None:
        if job:
            time.sleep(600)
        raise ZeroDivisionError("told")

    with pytest.raises(ZeroDivisionError, match="told") as caught:
        list(results(FORK, work, range(2), 2))
    assert "in work\n" in str(caught.value.__cause__)
    assert not active_children()


def test_an_error_that_cannot_be_sent_is_told() -> None:
    class Own(Exception):
        pass

    def work(job: int) -> None:
        raise Own("told")

    with pytest.raises(JobFailed, match="Own: told"):
        list(results(FORK, work, range(2), 2))


def test_a_process_that_is_kept_does_many_jobs() -> None:
    found = list(results(FORK, pid, range(9), 2, keep=True))
    assert len(found) == 9
    assert len({*found}) <= 2
    assert not active_children()


def pid(job: int) -> int:
    return os.getpid()


def test_bad_input_stays_bad_input() -> None:
    def work(job: int) -> None:
        raise CallerError("expected one, found two")

    with pytest.raises(CallerError, match=r"^expected one, found two$"):
        list(results(FORK, work, range(2), 2))


def test_who_takes_no_more_results_ends_the_processes() -> None:
    def work(job: int) -> int:
        if job:
            time.sleep(600)
        return job

    found = results(FORK, work, range(3), 2)
    assert next(found) == 0
    assert len(active_children()) == 1
    found.close()
    assert not active_children()


def test_a_signal_while_a_process_starts_leaves_none(monkeypatch: Patch) -> None:
    start = FORK.Process.start

    def interrupted(process: object) -> None:
        start(process)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(FORK.Process, "start", interrupted)
    before = {end: signal.getsignal(end) for end in ENDS}
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            list(results(FORK, lambda _: time.sleep(600), range(2), 2))
    finally:  # an interrupted command keeps its handlers until it exits
        for end, handler in before.items():
            signal.signal(end, handler)
    assert not active_children()
