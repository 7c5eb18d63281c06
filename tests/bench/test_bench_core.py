"""The core alone: lives over the expanded conversation trace, and cost against tree size."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    EvictWanted,
    Finished,
    MatchWanted,
    PagesWanted,
    PrefillDone,
)
from hicache.core.types import Key, Tier

from .conftest import Record

BLOCK = 512
WHOLE = 1 << 40


def one_life(core: Core, request: int, prompt: Key, length: int, final: Key, end: int) -> None:
    """Match, lock, take (evicting), insert the prompt, grow, insert the whole, unlock."""
    handle = core.handle
    handle(Arrived(request, prompt, length, (length - 1) // 64))
    prefill = handle(AdmitWanted(request, WHOLE))[-1]
    assert isinstance(prefill, Prefill)
    handle(PrefillDone(prefill.flight))
    handle(PagesWanted(request, end))
    handle(Finished(request, final, end))


def test_core_alone(benchmark: Any, record: Record, conversation: Path) -> None:
    """Tokens of page 64 in a pool of 3 M tokens; key building is the caller's and not timed."""
    core = Core(Config(page_size=64, device_pages=(3_000_000 // 64,)))
    spent: list[int] = []

    def whole_trace() -> None:
        for index, line in enumerate(conversation.read_text().splitlines()):
            entry = json.loads(line)
            blocks = np.array(entry["hash_ids"], dtype=np.int64)
            tokens = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()[: entry["input_length"]]
            output = np.arange(entry["output_length"], dtype=np.int64) + (index + 1) * (1 << 40)
            everything = np.concatenate((tokens, output))[:-1]
            prompt, final = Key.from_tokens(tokens, 64), Key.from_tokens(everything, 64)
            start = perf_counter_ns()
            one_life(core, index, prompt, len(tokens), final, len(everything))
            spent.append(perf_counter_ns() - start)

    benchmark.pedantic(whole_trace, rounds=1, iterations=1)
    rate = len(spent) * 1e9 / sum(spent)
    p99 = float(np.quantile(spent, 0.99)) / 1e6
    record("core alone, conversation trace, page 64", f"{rate:,.0f} requests/s", ">= 3,000")
    record("core alone, one request's life, p99", f"{p99:.2f} ms", "<= 2 ms")


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
