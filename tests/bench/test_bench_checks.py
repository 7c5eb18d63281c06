"""Checked operations per second: drawn sequences, played on small trees."""

import statistics
from time import process_time
from typing import Any

import pytest

from hicache.core.config import Config
from hicache.runtime.driver import Observer
from invariants.checker import Checker
from invariants.fuzz.hicache.play import generate, step
from invariants.fuzz.hicache.player import Player
from invariants.fuzz.sequence import Entry
from tests.invariants.life import corner
from tests.tiny import configured

WARM, MEASURED = 3_000, 5_000
CONFIG = Config(16, (260,), (520,), kv_events=True)


class NoRecounts(Checker):
    """Incremental checks alone: what they cost without the audits that they are held against."""

    @property
    def audit_every(self) -> int:
        return 1 << 60


def drawn(config: Config, count: int = WARM + MEASURED) -> list[Entry]:
    """Nothing fails, and nothing happens that empties the tree or looks at all of it."""
    without = ("evict", "flush", "hoard", "meddle", "misuse", "revisit")
    return [*generate(corner(config, 0, without), count, "off").sequence.entries]


def rate(
    entries: list[Entry], checker: Observer, config: Config = CONFIG, warm: int = WARM
) -> tuple[float, float]:
    """Operations per second of one core that plays, decides and checks, and mean live nodes."""
    player = Player(config, "time", Checker("off"))
    player._driver.observers = (checker,)  # the probes count for the fuzzer
    for entry in entries[:warm]:
        step(player, entry)
    before, nodes, start = player.events, [], process_time()
    for first in range(warm, len(entries), MEASURED // 10):
        for entry in entries[first : first + MEASURED // 10]:
            step(player, entry)
        nodes.append(sum(1 for _ in player.core.view.nodes()))
    spent = process_time() - start
    return (player.events - before) / spent, statistics.mean(nodes)


@pytest.mark.parametrize("components", ["full", "full,swa,mamba"])
def test_checked_operations_per_second(components: str, benchmark: Any) -> None:
    config = CONFIG if components == "full" else HYBRID
    entries = drawn(config)

    def triples() -> list[tuple[float, float, float, float]]:
        result = []
        for _ in range(3):
            unchecked, _ = rate(entries, Checker("off"), config)
            alone, _ = rate(entries, NoRecounts("every"), config)
            checked, nodes = rate(entries, Checker("every"), config)
            result.append((checked, unchecked / alone, unchecked / checked, nodes))
        return result

    results = benchmark.pedantic(triples, rounds=1, iterations=1)
    speed, alone, cost, nodes = (statistics.median(item) for item in zip(*results, strict=True))
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
