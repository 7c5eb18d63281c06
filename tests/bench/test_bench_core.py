"""The core alone: lives over the expanded conversation trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from hicache.compiled import finder

from .conftest import Record

TURN = 50  # lives
SOURCE, COMPILED = "source", "compiled"


def _lives(trace: Path) -> dict[str, list[int]]:
    """CPU nanoseconds of each life, of the core from source and of the compiled one if there is
    one, each in a process of its own. They take turns."""
    names = (SOURCE, *([COMPILED] if finder.usable() else []))
    found: dict[str, list[int]] = {name: [] for name in names}
    with ExitStack() as stack:
        players = [(name, stack.enter_context(_player(name, trace))) for name in names]
        while players:
            players.append(players.pop(0))  # nobody is always first
            for name, player in players:
                told = _played(player)
                found[name] += told
            players = players if told else []
    return found


def _player(name: str, trace: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.core_lives", str(trace)],
        env=dict(os.environ, HICACHE_BUILD="compiled" if name == COMPILED else "pure"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _played(player: subprocess.Popen[str]) -> list[int]:
    assert player.stdin is not None
    assert player.stdout is not None
    print(TURN, file=player.stdin, flush=True)
    spent: list[int] = json.loads(player.stdout.readline())
    return spent


def _shown(spent: list[int]) -> str:
    p50, p99 = (float(np.quantile(spent, one)) / 1e3 for one in (0.5, 0.99))
    return f"{len(spent) * 1e9 / sum(spent):,.0f} requests/s, p50 {p50:.0f} us, p99 {p99:.0f} us"


def test_core_alone(benchmark: Any, record: Record, conversation: Path) -> None:
    """Tokens of page 64 in a pool of 3 M tokens, CPU time; compiled, and as it is, in turn."""
    found = benchmark.pedantic(lambda: _lives(conversation), rounds=1, iterations=1)
    for build, spent in found.items():
        record(f"core alone, {build}, conversation trace, page 64", _shown(spent), "p99 <= 1 ms")
