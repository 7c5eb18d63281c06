"""Checked operations per second: the random caller of the tests on a tree of about 200 nodes."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import Any

from hicache.core.config import Config
from invariants.watch import Watch
from tests.invariants.rig import Rig

from .conftest import Record

WARM, MEASURED = 6_000, 10_000


class NoRecounts(Watch):
    """Incremental checks alone: what they cost without the audits that they are held against."""

    @property
    def audit_every(self) -> int:
        return 1 << 60


def rate(watch: Watch) -> tuple[float, float]:
    """Operations per second of caller, core and checks together, and mean live nodes."""
    config = Config(16, (700,), (1_400,), kv_events=True)
    rig = Rig(config, seed=3, fail_percent=0, words=9)
    rig.watch = watch
    rig.run(WARM)
    before, nodes, start = len(rig.tape), [], perf_counter()
    for _ in range(10):
        rig.run(MEASURED // 10)
        nodes.append(sum(1 for _ in rig.core.view.nodes()))
    spent = perf_counter() - start
    return (len(rig.tape) - before) / spent, statistics.mean(nodes)


def test_checked_operations_per_second(benchmark: Any, record: Record) -> None:
    def triples() -> list[tuple[float, float, float, float]]:
        found = []
        for _ in range(3):
            unchecked, _ = rate(Watch("off"))
            alone, _ = rate(NoRecounts("every"))
            checked, nodes = rate(Watch("every"))
            found.append((checked, unchecked / alone, unchecked / checked, nodes))
        return found

    found = benchmark.pedantic(triples, rounds=1, iterations=1)
    speed, alone, cost, nodes = (statistics.median(one) for one in zip(*found, strict=True))
    record(f"checked operations, {nodes:.0f} live nodes", f"{speed:,.0f} /s", ">= 2,000 /s")
    record("the same, incremental checks against none", f"{alone:.2f} x", "<= 2 x")
    record("the same, with recounts, against none", f"{cost:.2f} x", "-")
