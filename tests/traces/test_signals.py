"""Commands that are asked to end: what was found is kept, one line is said, nobody stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

from .rig import BUG, python

pytestmark = pytest.mark.usefixtures("signals")
ROOT = Path(__file__).resolve().parents[2]
HUNT = ("fuzz", "--seed", "16", "--operations", "25", "--sequences", "1000000")


@contextmanager
def hunting(folder: Path, jobs: int) -> Iterator[subprocess.Popen[str]]:
    """A hunt in a group of its own that has found something."""
    words = [*HUNT, "--jobs", str(jobs), "--json", "out.json"]
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


@pytest.mark.parametrize(
    ("number", "jobs"), [(signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGHUP, 1)]
)
def test_an_interrupted_hunt_keeps_its_findings(
    number: signal.Signals, jobs: int, tmp_path: Path
) -> None:
    with hunting(tmp_path, jobs) as process:
        os.killpg(process.pid, number)  # as a CI or a terminal does: the workers, too
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 11
        assert said.endswith("hicache: interrupted; found so far:\n")
        assert "Traceback" not in said
        assert "replay: hicache fuzz --replay" in (tmp_path / "out").read_text()
        found = json.loads((tmp_path / "out.json").read_text())
        assert found["complete"] is False
        assert found["exit_code"] == 11
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
