"""Checked operations per second: the random caller of the tests on a tree of about 200 nodes."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import Any

import pytest

from hicache.core.config import Config
from tests.invariants.rig import Rig

from .conftest import Record

WARM, MEASURED = 6_000, 10_000


def rate(level: str) -> tuple[float, float]:
    """Operations per second of caller, core and checks together, and mean live nodes."""
    config = Config(16, (700,), (1_400,), kv_events=True)
    rig = Rig(config, seed=3, level=level, fail_percent=1, words=9)  # type: ignore[arg-type]
    rig.run(WARM)
    before, nodes, start = len(rig.tape), [], perf_counter()
    for _ in range(10):
        rig.run(MEASURED // 10)
        nodes.append(sum(1 for _ in rig.core.view.nodes()))
    spent = perf_counter() - start
    return (len(rig.tape) - before) / spent, statistics.mean(nodes)


@pytest.mark.parametrize("level", ["every"])
def test_checked_operations_per_second(benchmark: Any, record: Record, level: str) -> None:
    def pairs() -> list[tuple[float, float, float]]:
        found = []
        for _ in range(3):
            unchecked, _ = rate("off")
            checked, nodes = rate(level)
            found.append((checked, unchecked / checked, nodes))
        return found

    found = benchmark.pedantic(pairs, rounds=1, iterations=1)
    speed, cost, nodes = (statistics.median(column) for column in zip(*found, strict=True))
    record(f"checked operations, {nodes:.0f} live nodes", f"{speed:,.0f} /s", ">= 2,000 /s")
    record("the same, all checks against none", f"{cost:.1f} x", "<= 2 x")
