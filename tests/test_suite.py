"""On any machine the suite is green or says in one line why not; a test that never ends fails, with
its name and its stack, and the other tests still run."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import PATIENCE_S, missing

ROOT = Path(__file__).resolve().parents[1]
# It waits in forked processes, whose copies of the worker's pipe keep a dead worker from being
# noticed while they run.
HANGING = """
import threading, time
from traces import executors
from traces.terminal.signals import alarm

def test_before():
    pass

def test_hangs():
    with alarm(60, TimeoutError()):
        pass
    options = executors.JobOptions(str, forked=True)
    list(executors.run("local", 2, time.sleep, [1000, 1000], options))

def test_after():
    pass
"""
BUSY = """
from tests import conftest

conftest.CPU_S = 0.2

def test_loops():
    while True:
        pass

def test_after():
    pass
"""
SIGNALS = """
import os, signal, subprocess, sys
import pytest

def test_own(signals):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

def test_of_a_child(signals):
    for number in (signal.SIGINT, signal.SIGHUP):
        code = f'import os; os.kill(os.getpid(), {number:d}); print(1)'
        done = subprocess.run([sys.executable, '-c', code], capture_output=True)
        assert done.returncode == -number

def test_after():
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""


def suite(
    folder: Path, test: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """pytest over one file, with what is in the suite's own conftest."""
    (folder / "test_one.py").write_text(test)
    usual = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *usual, "-p", "tests.conftest", *words, "test_one.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_a_test_that_computes_without_end_fails(tmp_path: Path) -> None:
    done = suite(tmp_path, BUSY)
    assert done.returncode == 1
    assert "Failed: more than 0 s of processor time" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_hanging_test_fails_with_its_name_and_its_stack(tmp_path: Path) -> None:
    done = suite(tmp_path, HANGING, "-n", "1", "-o", "faulthandler_timeout=2")
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "crashed while running 'test_one.py::test_hangs'" in done.stdout
    assert "in test_hangs" in done.stderr


def test_a_folder_without_room_is_one_line(tmp_path: Path) -> None:
    if not os.access("/proc/self", os.R_OK) or shutil.disk_usage("/proc").free:
        missing("no file system without room is here")
    done = suite(tmp_path, BUSY, TMPDIR="/proc")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "and /proc has 0 MB left; make room, or name another folder in TMPDIR" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_what_is_missing_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for ci, outcome in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="no server"):
            missing("no server")


def test_signals_act_as_usual_where_the_suite_began_with_them_ignored(tmp_path: Path) -> None:
    before = {item: signal.signal(item, signal.SIG_IGN) for item in (signal.SIGINT, signal.SIGHUP)}
    try:
        done = suite(tmp_path, SIGNALS)
    finally:
        for value, handler in before.items():
            signal.signal(value, handler)
    assert "3 passed" in done.stdout, done.stdout


def test_a_virtual_environment_that_was_half_made_is_made_again(tmp_path: Path) -> None:
    """As where Debian's python3-venv is missing: there is a bin/python, and no pip."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nmkdir -p $3/bin\ntouch $3/bin/python\necho no pip\nexit 1\n")
    python.chmod(0o755)
    for _ in range(2):
        done = subprocess.run(
            ["make", "--no-print-directory", "PYTHON=./python", ".venv/bin/python"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ, MAKEFLAGS=""),
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "no pip")
