"""Checked operations per second: drawn tapes, played on small trees."""

from __future__ import annotations

import statistics
from time import process_time
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.runtime.driver import Observer
from invariants.against import Against
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.play import step
from invariants.fuzz.sequence import Entry
from invariants.watch import Watch
from tests.configs import configured
from tests.invariants.life import CLEARING, OPS, Life, corner

from .conftest import Record

WARM, MEASURED = 3_000, 5_000
CONFIG = Config(16, (260,), (520,), kv_events=True)


class NoRecounts(Watch):
    """Incremental checks alone: what they cost without the audits that they are held against."""

    @property
    def audit_every(self) -> int:
        return 1 << 60


def drawn(config: Config, count: int = WARM + MEASURED) -> list[Entry]:
    """Nothing fails, and nothing happens that empties the tree or looks at all of it."""
    swarm = corner(config, fail=0, without=(*CLEARING, "misuse"))
    life = Life(swarm, 3, Watch("off"))
    life.run(count)
    return life.entries


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
def test_checked_operations_per_second(components: str, benchmark: Any, record: Record) -> None:
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
    record(name, f"{speed:,.0f} /s", ">= 4,000 /s")
    record("the same, incremental checks against none", f"{alone:.2f} x", "<= 2 x")
    record("the same, with recounts, against none", f"{cost:.2f} x", "-")


SMALL = Config(16, (56,), (112,), kv_events=True)
SMALL_HYBRID = configured(
    16,
    (64, 40, 20),
    (128, 80, 40),
    kv_events=True,
    components=("full", "swa", "mamba"),
    swa_window=40,
    mamba_interval=16,
)


def unchecked(config: Config, entries: list[Entry], *observers: Observer) -> tuple[float, float]:
    """CPU time of a sequence as `hicache fuzz --check off` plays it; and the nodes at its end."""
    hand = Hand(config, "time", Watch("off"))
    for observer in observers:
        hand.observe(observer)
    start = process_time()
    for entry in entries:
        step(hand, OPS, entry)
    return process_time() - start, sum(1 for _ in hand.core.view.nodes())


@pytest.mark.parametrize("config", [SMALL, SMALL_HYBRID], ids=["full", "full,swa,mamba"])
def test_cost_of_the_specification(config: Config, benchmark: Any, record: Record) -> None:
    entries = drawn(config, 2_000)

    def pairs() -> list[tuple[float, float, float]]:
        found = []
        for _ in range(3):
            plain, _ = unchecked(config, entries)
            beside, nodes = unchecked(config, entries, Against(config))
            alone, _ = rate(entries, Watch("off"), config, 500)
            core, _ = rate(entries, Against(config), config, 500)
            found.append((beside / plain, alone / core, nodes))
        return found

    found = benchmark.pedantic(pairs, rounds=1, iterations=1)
    cost, bare, nodes = (statistics.median(one) for one in zip(*found, strict=True))
    names = ",".join(config.components)
    record(f"the specification, {names}, {nodes:.0f} live nodes", f"{cost:.2f} x", "<= 4 x")
    record("the same, against a core alone", f"{bare:.2f} x", "-")


HYBRID = configured(
    16,
    (210, 130, 64),
    (420, 260, 128),
    kv_events=True,
    components=("full", "swa", "mamba"),
    swa_window=40,
    mamba_interval=16,
)
