"""Jobs in processes: all ends of a worker, and of the command that started it. Commands that are
asked to end: what was found is kept, one line is said, nobody stays behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from hicache.core.errors import CallerError
from tests.needs import PATIENCE_S
from traces.executors import JobFailed, JobOptions, WorkerLost, run
from traces.terminal.signals import ENDS, interruptible

from .rig import BUG, ROOT, Patch, python

pytestmark = pytest.mark.usefixtures("here", "signals")

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


def test_a_machine_without_shared_memory_is_told_how_to_do_without(monkeypatch: Patch) -> None:
    monkeypatch.setattr("_multiprocessing.SemLock", Mock(side_effect=OSError(30, "Read-only")))
    with pytest.raises(CallerError, match=r"^--jobs 2: .*, found: Read-only; give --jobs 1$"):
        list(results(abs, range(2)))


def test_who_takes_no_more_results_ends_the_workers() -> None:
    def work(job: int) -> int:
        if job:
            time.sleep(600)
        return job

    with closing(results(work, range(3))) as result:
        assert next(result) == 0
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


def test_an_interrupt_while_the_command_waits_for_workers_ends_it() -> None:
    """As when the system gives the signal to another thread of the process."""
    Path("program.py").write_text(
        f"""
import signal, sys
from traces import executors
from traces.cli import main
wait = executors.wait
def interrupted(*given):
    signal.getsignal(signal.SIGINT)(signal.SIGINT, None)
    return wait(*given)
executors.wait = interrupted
if __name__ == "__main__":
    sys.exit(main({HUNT!r}))
"""
    )
    done = python("program.py", cwd=Path(), env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (130, "hicache: interrupted; found so far:\n")


LONG_HUNT = ("fuzz", "--seed", "16", "--operations", "25", "--sequences", "1000000")


@contextmanager
def hunting(folder: Path, jobs: int) -> Iterator[subprocess.Popen[str]]:
    """A hunt in a group of its own that has found something."""
    words = [*LONG_HUNT, "--jobs", str(jobs), "--json", "out.json"]
    with (
        open(folder / "out", "w") as out,
        subprocess.Popen(
            [sys.executable, "-m", "tests.planted.run", BUG, *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.stderr is not None
            assert "11 OWN-D" in process.stderr.readline()
            yield process
        finally:
            if lives(process.pid):
                os.killpg(process.pid, signal.SIGKILL)


def lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def is_gone(group: int) -> bool:
    end = time.monotonic() + PATIENCE_S
    while lives(group) and time.monotonic() < end:
        time.sleep(0.1)
    return not lives(group)


@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, 2), (signal.SIGHUP, 1)])
def test_an_interrupted_hunt_keeps_its_findings(
    number: signal.Signals, jobs: int, tmp_path: Path
) -> None:
    with hunting(tmp_path, jobs) as process:
        os.killpg(process.pid, number)  # as a CI or a terminal does: the workers, too
        _, message = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 11
        assert message.endswith("hicache: interrupted; found so far:\n")
        assert "Traceback" not in message
        assert "replay: hicache fuzz --replay" in (tmp_path / "out").read_text()
        result = json.loads((tmp_path / "out.json").read_text())
        assert result["complete"] is False
        assert result["exit_code"] == 11
        kept = {path.suffix for path in (tmp_path / "fuzz-failures").iterdir()}
        assert kept == {".jsonl", ".txt"}
        assert is_gone(process.pid)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with hunting(tmp_path, 2) as process:
        process.kill()
        process.wait(PATIENCE_S)
        assert is_gone(process.pid)


def test_second_signal_kills_immediately() -> None:
    code = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from traces.terminal import signals
signals.GRACE_S = -1.0
with signals.interruptible():
    os.kill(os.getpid(), signal.SIGHUP)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        print("deaf")
    except KeyboardInterrupt:
        print("told", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("deaf")
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "told\n", "")
