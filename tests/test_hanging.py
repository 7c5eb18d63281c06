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
from multiprocessing import get_context
from traces.terminal.alarm import alarm
from traces.terminal.processes import results

def test_before():
    pass

def test_hangs():
    with alarm(60, TimeoutError()):
        pass
    list(results(get_context("fork"), time.sleep, [1000, 1000], 2))

def test_after():
    pass
"""


def test_a_hanging_test_fails_with_its_name_and_its_stack(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(HANGING)
    words = ("-n", "1", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path))
    limit = ("-o", "faulthandler_timeout=2", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *limit, "test_one.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "crashed while running 'test_one.py::test_hangs'" in done.stdout
    assert "in test_hangs" in done.stderr
