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
from dataclasses import replace
from pathlib import Path

import pytest

from invariants.fuzz.tapes.tape import read, write
from tests.patience import PATIENCE_S
from traces.cli import main

from .test_shrink_command import FAILING

pytestmark = pytest.mark.usefixtures("signals")
ROOT = Path(__file__).resolve().parents[2]
BUG = "donated-slot-stays-with-its-request"
HUNT = ("fuzz", "--plant", BUG, "--seed", "16", "--operations", "25", "--sequences", "1000000")


@contextmanager
def hunting(folder: Path, jobs: int) -> Iterator[subprocess.Popen[str]]:
    """A hunt in a group of its own that has found something."""
    words = [*HUNT, "--jobs", str(jobs), "--json", "out.json"]
    with (
        open(folder / "out", "w") as out,
        subprocess.Popen(
            [sys.executable, "-m", "traces", *words],
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


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    ("number", "jobs"),
    [(signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGHUP, 1)],
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
        assert "explain: hicache explain" in (tmp_path / "out").read_text()
        found = json.loads((tmp_path / "out.json").read_text())
        assert found["complete"] is False
        assert found["exit_code"] == 11
        assert {path.suffix for path in (tmp_path / "fuzz-failures").iterdir()} == {
            ".jsonl",
            ".txt",
        }
        assert is_gone(process.pid)


@pytest.mark.one_in(16)
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
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "told\n", "")


# Shrinks until it has kept a smaller tape, then waits within a play, or within the verification.
SHRINKING = """
import sys, time
from pathlib import Path
from traces.commands import shrink
from traces.cli import main

def waiting(*_):
    Path("ready").touch()
    while True:
        time.sleep(0.01)

def play(tape, ops, name=""):
    found = real(tape, ops, name)
    if found.failure is not None and len(tape.entries) < 7:
        shrink._play = after_it
    return found

def after_it(tape, ops, name=""):
    waiting()

real = shrink._play
if sys.argv[1] == "search":
    shrink._play = play
else:
    shrink._verify = waiting
sys.exit(main(["shrink", "tape.jsonl", "-o", "small.jsonl", "--json", "o.json", "--export", "new"]))
"""


@pytest.mark.one_in(16)
@pytest.mark.parametrize(
    ("number", "during", "entries"),
    [(signal.SIGTERM, "search", 4), (signal.SIGINT, "search", 4), (signal.SIGTERM, "check", 3)],
)
def test_interrupted_shrinking_keeps_the_smallest_tape(
    number: signal.Signals, during: str, entries: int, tmp_path: Path
) -> None:
    write(
        tmp_path / "tape.jsonl", replace(FAILING, notes={"plant": "failed-backup-keeps-its-lock"})
    )
    with subprocess.Popen(
        [sys.executable, "-c", SHRINKING, during],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            end = time.monotonic() + PATIENCE_S
            while not (tmp_path / "ready").exists() and time.monotonic() < end:
                time.sleep(0.01)
            process.send_signal(number)
            out, said = process.communicate(timeout=PATIENCE_S)
        finally:
            if lives(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert said == "hicache: interrupted; the smallest failing tape so far is kept\n"
    assert "not repeated in fresh processes, so no test" in out
    small = read(tmp_path / "small.jsonl")
    assert len(small.entries) == entries
    assert main(["shrink", str(tmp_path / "small.jsonl"), "--as-is"]) == 11
    found = json.loads((tmp_path / "o.json").read_text())
    assert (found["complete"], found["verified"], found["written"]) == (False, 0, ["small.jsonl"])
    assert {path.name for path in tmp_path.iterdir()} == {
        *("tape.jsonl", "small.jsonl", "o.json", "ready")
    }
