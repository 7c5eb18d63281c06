"""The core alone: lives over the expanded conversation trace, and cost against tree size."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from hicache.compiled import finder
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    EvictWanted,
    MatchWanted,
    PrefillDone,
)
from hicache.core.types import Key, Tier

from .conftest import Record
from .core_lives import WHOLE, one_life
from .sglang_core import extension

TURN = 50  # lives
SOURCE, COMPILED, SGLANGS = "source", "compiled", "SGLang's Rust tree core"


def _lives(trace: Path, *others: str) -> dict[str, list[int]]:
    """CPU nanoseconds of each life: of the core from source, of the compiled one if there is one,
    and of the others, each in a process of its own. They take turns."""
    names = (SOURCE, *([COMPILED] if finder.usable() else []), *others)
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
    which = "sglang" if name == SGLANGS else "ours"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.core_lives", which, str(trace)],
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


def test_core_beside_sglangs(benchmark: Any, record: Record, conversation: Path) -> None:
    """The same lives in SGLang's Rust tree core, in turn (see sglang_core)."""
    extension()
    found = benchmark.pedantic(lambda: _lives(conversation, SGLANGS), rounds=1, iterations=1)
    theirs = sum(found[SGLANGS])
    record(f"{SGLANGS}, the same lives", _shown(found.pop(SGLANGS)), "-")
    for build, spent in found.items():
        record(f"the core, {build}, in the same run", _shown(spent), "p99 <= 1 ms")
        least = ">= 1.3" if build == COMPILED else ">= 0.8"
        record("times as fast as SGLang's", f"{theirs / sum(spent):.2f}", least)


def _median_us(calls: list[Callable[[], object]]) -> float:
    spent = []
    for call in calls:
        start = perf_counter_ns()
        call()
        spent.append(perf_counter_ns() - start)
    return statistics.median(spent) / 1e3


@pytest.mark.parametrize("leaves", [900, 9_000, 90_000])
def test_cost_against_tree_size(benchmark: Any, record: Record, leaves: int) -> None:
    """Nodes: `leaves` of 6 pages below leaves / 10 shared prefixes of 2 pages, page 16."""
    core = Core(Config(page_size=16, device_pages=(leaves * 8 + 64,)))
    draw = np.random.default_rng(1)
    prefixes = draw.integers(0, 1 << 30, (leaves // 10, 32))
    tails = draw.integers(0, 1 << 30, (leaves, 96))
    keys = [
        Key.from_tokens(np.concatenate((prefixes[leaf % len(prefixes)], tails[leaf])), 16)
        for leaf in range(leaves)
    ]
    for leaf, key in enumerate(keys):
        one_life(core, leaf, key, 128, key, 128)
    nodes = sum(1 for _ in core.view.nodes())
    some = [int(leaf) for leaf in draw.integers(0, leaves, 400)]
    first = 10 * leaves
    for number, leaf in enumerate(some):
        core.handle(Arrived(first + number, keys[leaf], 128, 8))
    gc.collect()
    waiting = range(first, first + len(some))

    def measure() -> tuple[float, float, float, float]:
        match = _median_us([lambda r=r: core.handle(MatchWanted(r)) for r in waiting])
        flights: list[int] = []

        def admit(request: int) -> None:
            flights.append(core.handle(AdmitWanted(request, WHOLE))[-1].flight)  # type: ignore[union-attr]

        lock = _median_us([lambda r=r: admit(r) for r in waiting])
        for flight in flights:
            core.handle(PrefillDone(flight))
        unlock = _median_us([lambda r=r: core.handle(Aborted(r)) for r in waiting])
        wanted = EvictWanted(Tier.DEVICE, "full", 1)
        evict = _median_us([lambda: core.handle(wanted) for _ in some])
        return match, lock, unlock, evict

    match, lock, unlock, evict = benchmark.pedantic(measure, rounds=1, iterations=1)
    record(f"{nodes:>7,} nodes: match 8 pages", f"{match:.1f} us", "<= 10 us at 100 k")
    record(f"{nodes:>7,} nodes: admit (match, lock, take)", f"{lock:.1f} us", "does not grow")
    record(f"{nodes:>7,} nodes: abort (unlock)", f"{unlock:.1f} us", "does not grow")
    record(f"{nodes:>7,} nodes: evict one page", f"{evict:.1f} us", "<= 50 us at 100 k")
