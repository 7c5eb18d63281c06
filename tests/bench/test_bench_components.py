"""Hybrids: the conversation trace in every configuration, published rates, what they cost."""

from __future__ import annotations

import statistics
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


@pytest.mark.parametrize("mode", MODES)
def test_states_on_host(benchmark: Any, record: Record, tmp_path: Path, mode: str) -> None:
    """50 states on the device, 10 clients, 12 rounds: with and without a host."""
    trace = tmp_path / "turns.jsonl"
    assert main(["generate", "multiturn", "-o", str(trace)]) == 0
    options = ("--components", "full,mamba", "--mamba-states", "50", "--mode", mode)

    def rates(tokens: str) -> list[dict[str, Any]]:
        return [
            run(tmp_path, trace, *options, "--device-tokens", tokens, "--host-ratio", ratio)
            for ratio in ("2", "0")
        ]

    found = {"48K": benchmark.pedantic(rates, ("48K",), rounds=1, iterations=1), "1M": rates("1M")}
    for tokens, pair in found.items():
        for name, result, target in zip(
            ("host ratio 2", "no host"), pair, ("0.897569", "0.547049 published"), strict=True
        ):
            what = f"50 states, {tokens} tokens of full, {mode}, {name}: hit rate"
            record(what, f"{result['whole']['hit_rate']:.6f}", target)
    for turn in found["48K"][0]["turns"]:
        number = turn["turn"] - 1
        target = f"{max(0, 8 * number - 1) / (8 * number + 4):.6f}"
        what = f"50 states, {mode}, host ratio 2: hit rate of round {turn['turn']:>2}"
        record(what, f"{turn['hit_rate']:.6f}", target)


def test_orders_of_eviction(benchmark: Any, record: Record, tmp_path: Path) -> None:
    """128 conversations in turn, and states for little more than their last ones."""
    trace = tmp_path / "turns.jsonl"
    assert main(["generate", "multiturn", "--clients", "128", "-o", str(trace)]) == 0
    options = ("--mode", "hits", "--components", "full,mamba", "--mamba-states", "432")
    result = benchmark.pedantic(
        run,
        (tmp_path, trace, *options, "--device-tokens", "1M", "--compare-eviction", "lru_path"),
        rounds=1,
        iterations=1,
    )
    lru, naive = result["whole"]["hit_rate"], result["compared"]["whole"]["hit_rate"]
    record("128 conversations, 432 states, lru: hit rate", f"{lru:.6f}", ">= 0.83")
    record("128 conversations, 432 states, lru_path: hit rate", f"{naive:.6f}", "about 0.61")
