"""Checked operations per second: drawn tapes, played on small trees."""

from __future__ import annotations

import statistics
from time import process_time
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.runtime.driver import Observer
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.play import generate, step
from invariants.fuzz.sequence import Entry
from invariants.watch import Watch
from tests.configs import configured
from tests.invariants.life import OPS, corner

WARM, MEASURED = 3_000, 5_000
CONFIG = Config(16, (260,), (520,), kv_events=True)


class NoRecounts(Watch):
    """Incremental checks alone: what they cost without the audits that they are held against."""

    @property
    def audit_every(self) -> int:
        return 1 << 60


def drawn(config: Config, count: int = WARM + MEASURED) -> list[Entry]:
    """Nothing fails, and nothing happens that empties the tree or looks at all of it."""
    without = ("evict", "flush", "hoard", "meddle", "misuse", "revisit")
    return [*generate(corner(config, 0, without), OPS, 3, count, "off").tape.entries]


def rate(
    entries: list[Entry], watch: Observer, config: Config = CONFIG, warm: int = WARM
) -> tuple[float, float]:
    """Operations per second of one core that plays, decides and checks, and mean live nodes."""
    hand = Hand(config, "time", Watch("off"))
    hand._driver.observers = (watch,)  # the probes count for the fuzzer
    for entry in entries[:warm]:
        step(hand, OPS, entry)
    before, nodes, start = hand.events, [], process_time()
    for first in range(warm, len(entries), MEASURED // 10):
        for entry in entries[first : first + MEASURED // 10]:
            step(hand, OPS, entry)
        nodes.append(sum(1 for _ in hand.core.view.nodes()))
    spent = process_time() - start
    return (hand.events - before) / spent, statistics.mean(nodes)


@pytest.mark.parametrize("components", ["full", "full,swa,mamba"])
def test_checked_operations_per_second(components: str, benchmark: Any) -> None:
    config = CONFIG if components == "full" else HYBRID
    entries = drawn(config)

    def triples() -> list[tuple[float, float, float, float]]:
        found = []
        for _ in range(3):
            unchecked, _ = rate(entries, Watch("off"), config)
            alone, _ = rate(entries, NoRecounts("every"), config)
            checked, nodes = rate(entries, Watch("every"), config)
            found.append((checked, unchecked / alone, unchecked / checked, nodes))
        return found

    found = benchmark.pedantic(triples, rounds=1, iterations=1)
    speed, alone, cost, nodes = (statistics.median(one) for one in zip(*found, strict=True))
    name = f"checked operations, {components}, {nodes:.0f} live nodes"
    print(f"{name}: {speed:,.0f} /s, target >= 4,000 /s")
    print(f"the same, incremental checks against none: {alone:.2f} x, target <= 2 x")
    print(f"the same, with recounts, against none: {cost:.2f} x")


HYBRID = configured(
    16,
    (210, 130, 64),
    (420, 260, 128),
    kv_events=True,
    components=("full", "swa", "mamba"),
    swa_window=40,
    mamba_interval=16,
)
