"""A test that never ends fails, with its name and its stack, and the other tests still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

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


def run(folder: Path, test: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_one.py").write_text(test)
    words = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, *more, "test_one.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_a_test_that_computes_without_end_fails(tmp_path: Path) -> None:
    done = run(tmp_path, BUSY, "-p", "tests.conftest")
    assert done.returncode == 1
    assert "Failed: more than 0 s of processor time" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_hanging_test_fails_with_its_name_and_its_stack(tmp_path: Path) -> None:
    done = run(tmp_path, HANGING, "-n", "1", "-o", "faulthandler_timeout=2")
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "crashed while running 'test_one.py::test_hangs'" in done.stdout
    assert "in test_hangs" in done.stderr
