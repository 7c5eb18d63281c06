"""Hybrids: the conversation trace in every configuration, published rates, what they cost."""

from __future__ import annotations

import math
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .conftest import Record
from .test_bench_replay import run

CONFIGURATIONS = ("full", "full,swa", "full,mamba", "full,swa,mamba")
SIZES = ("--device-tokens", "1M", "--hardware", "h100")
MODES: dict[str, tuple[str, ...]] = {
    "hits": ("--mode", "hits", "--host-ratio", "2"),
    "timed": ("--mode", "timed"),
}


@pytest.mark.parametrize("components", CONFIGURATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_conversation(
    benchmark: Any,
    record: Record,
    conversation: Path,
    tmp_path: Path,
    mode: str,
    components: str,
) -> None:
    """Checked, with the defaults of the pools that are not full's."""
    options = (*MODES[mode], *SIZES, "--components", components)
    result = benchmark.pedantic(
        run, (tmp_path, conversation, *options, "--check", "sampled"), rounds=1, iterations=1
    )
    assert result["checks"]["violations"] == 0
    hits = result["whole"]["hit_tokens"]
    what = f"conversation, {mode}, {components}"
    record(f"{what}: hit rate", f"{result['whole']['hit_rate']:.6f}", "no ground truth")
    record(f"{what}: device + host hit tokens", f"{hits['device']:,} + {hits['host']:,}", "-")
    record(f"{what}: {result['checks']['operations']:,} operations, violations", "0", "0")
    record(f"{what}: process wall time, --check sampled", f"{result['wall']:.1f} s", "-")
    for name, use in result["components"].items():
        for tier in ("device", "host"):
            cached = use["cached_at_rest"][tier]
            share = use["garbage_at_rest"][tier] / cached if cached else 0.0
            record(f"{what}: garbage of {name} at rest, {tier}", f"{share:.4%}", "<= 5 %")


@pytest.mark.parametrize("mode", MODES)
def test_cost_of_three_components_against_one(
    benchmark: Any, record: Record, conversation: Path, tmp_path: Path, mode: str
) -> None:
    """Pairs in turn, so that the machine's drift cancels."""

    def pairs() -> list[float]:
        ratios = []
        for _ in range(3):
            spent = [
                run(
                    tmp_path,
                    conversation,
                    *(*MODES[mode], *SIZES, "--check", "off", "--components", components),
                )["wall_s"]
                for components in ("full", "full,swa,mamba")
            ]
            ratios.append(spent[1] / spent[0])
        return ratios

    ratios = benchmark.pedantic(pairs, rounds=1, iterations=1)
    shown = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
    record(
        f"{mode}, three components / full alone, 3 pairs",
        f"{shown} (median {statistics.median(ratios):.2f})",
        "<= 2",
    )


PUBLISHED = {
    "10 clients, 50 states, no host, lru_path": (
        "--num-clients 10 --num-rounds 12 --request-tokens 256 --output-tokens 256",
        "--components full,mamba --mamba-states 50 --device-tokens 1M --eviction lru_path",
        (0.583333, 0.60, 0.58, 0.60, 0.44, 0.72, 0.55, 0.65, 0.47, 0.56, 0.45),
    ),
    "128 clients, 262,144 tokens, no host": (
        "--num-clients 128 --num-rounds 10",
        "--page-size 64 --device-tokens 262144 --model qwen3-32b --hardware h200",
        (0.470588, 0.653846, 0.630580, 0.363459, 0.239976, 0.146925, 0.143266, 0.055469, 0.035112),
    ),
}
SEEDS = 20


@pytest.mark.parametrize("name", PUBLISHED)
def test_rounds_of_a_published_table(
    benchmark: Any, record: Record, tmp_path: Path, name: str
) -> None:
    """How far the mean of several seeds is from the table, and two seeds from each other."""
    clients, options, published = PUBLISHED[name]

    def rounds(seed: int) -> list[float]:
        trace = tmp_path / "turns.jsonl"
        words = f"bench-multiturn {clients} --enable-round-barrier --seed {seed}"
        assert main(["generate", *words.split(), "-o", str(trace)]) == 0
        found = run(tmp_path, trace, *options.split(), "--host-ratio", "0")
        return [turn["hit_rate"] for turn in found["turns"][1:]]

    def every() -> list[list[float]]:
        return [rounds(seed) for seed in range(1, SEEDS + 1)]

    seeds = benchmark.pedantic(every, rounds=1, iterations=1)
    means = [statistics.mean(column) for column in zip(*seeds, strict=True)]
    for number, (ours, theirs) in enumerate(zip(means, published, strict=True), start=2):
        record(f"{name}: mean hit rate of round {number}", f"{ours:.4f}", f"{theirs:.4f}")
    apart = sorted(math.dist(a, b) / len(a) ** 0.5 for a, b in combinations(seeds, 2))
    record(
        f"{name}: RMSE of the mean", f"{math.dist(means, published) / len(means) ** 0.5:.3f}", ""
    )
    away = [math.dist(one, published) / len(one) ** 0.5 for one in seeds]
    record(f"{name}: RMSE of a seed, median", f"{statistics.median(away):.3f}", "")
    spread = f"{statistics.median(apart):.3f}, {apart[len(apart) * 95 // 100]:.3f}"
    record(f"{name}: RMSE between two seeds, median and 95 %", spread, "")


def test_orders_of_eviction(benchmark: Any, record: Record, tmp_path: Path) -> None:
    """128 clients and 512 states: the used state is refreshed, or the whole path."""
    trace = tmp_path / "turns.jsonl"
    words = "--num-clients 128 --num-rounds 12 --enable-round-barrier"
    assert main(["generate", "bench-multiturn", *words.split(), "-o", str(trace)]) == 0
    options = "--components full,mamba --page-size 1 --mamba-states 512 --device-tokens 2M"
    words = (*options.split(), "--host-ratio", "0", "--eviction")
    result = benchmark.pedantic(run, (tmp_path, trace, *words, "lru"), rounds=1, iterations=1)
    other = run(tmp_path, trace, *words, "lru_path")
    lru, naive = result["whole"]["hit_rate"], other["whole"]["hit_rate"]
    record("128 clients, 512 states, lru: hit rate", f"{lru:.6f}", "0.80, 0.83 published")
    record("128 clients, 512 states, lru_path: hit rate", f"{naive:.6f}", "0.55, 0.61 published")
