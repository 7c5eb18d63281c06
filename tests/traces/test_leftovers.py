"""What killed commands left is removed by the next one, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from traces.terminal import output
from traces.terminal.output import write_json

pytestmark = pytest.mark.usefixtures("here")

ROOT = Path(__file__).resolve().parents[2]


def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(PATIENCE_S)
    return process.pid


def test_drafts_of_dead_processes_are_removed_and_nothing_else() -> None:
    host, gone = output._HOST, dead()
    left = [f".hicache-{host}-{gone}-0.tmp", f".hicache-{host}-{gone}-17.tmp"]
    kept = [
        f".hicache-{host}-{os.getppid()}-0.tmp",  # it runs
        f".hicache-other-{gone}-0.tmp",  # of another machine
        f".hicache-{host}-{gone}.json",
        f"hicache-{host}-{gone}.jsonl",
        f"my.hicache-{host}-{gone}-0.tmp",
        f".{gone}.tmp",
    ]
    for name in (*left, *kept):
        Path(name).write_text("mine")
    write_json("out.json", {})
    assert sorted(one.name for one in Path().iterdir()) == sorted([*kept, "out.json"])
