"""Memory for each request of a trace: a trace is held in columns, and nothing grows beside them.

A child process replays a short trace and a long one; the difference of the peaks is what a request
costs. The prompts are one block of a few, so the tree stays small.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .rig import mooncake, python, write

FEW, MANY = 4_000, 34_000
CHILD = """
import resource, sys
from traces.cli import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""
HITS = ["--mode", "hits", "--device-pages", "64", "--page-size", "512", "--check", "off"]
MOST_BYTES = 250


def written(path: Path, requests: int) -> Path:
    return write(path, *(mooncake([index % 50], timestamp=index) for index in range(requests)))


def peak_bytes(*words: str) -> int:
    return int(python("-c", CHILD, *words, check=True).stderr.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
@pytest.mark.parametrize("command", ["replay", "inspect", "curve"])
def test_a_request_costs_few_bytes(command: str, tmp_path: Path) -> None:
    options = HITS if command == "replay" else []
    few, many = (
        peak_bytes(command, str(written(tmp_path / f"{count}.jsonl", count)), *options)
        for count in (FEW, MANY)
    )
    assert (many - few) / (MANY - FEW) < MOST_BYTES
