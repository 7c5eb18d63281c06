"""Figures of docs/components.md: what the page says is what its commands print.

Each row is a command and the words of the page around its figure. The drawn lives of
docs/figures.md take minutes: tests/bench/test_bench_lives.py compares them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "components.md"
STATES = ("--components", "full,mamba", "--mamba-states")
PAIR = r"\| {} \| ([\d.]+) \| ([\d.]+) \|"
ROWS = {
    "32,000 tokens": ("50", "32000", PAIR.format("32,000 tokens")),
    "48,000 tokens": ("50", "48000", PAIR.format("48,000 tokens")),
    "64,000 tokens": ("50", "64000", PAIR.format("64,000 tokens and more")),
    "36 states": ("36", "1M", r"36 states.*?the rate is ([\d.]+) with a host and ([\d.]+) without"),
}
ORDERS = {
    "432": r"--mamba-states 432.*?\| lru_path \| ([\d.]+) \|",
    "512": r"At 512 states.*?`lru_path` reaches ([\d.]+) here",
}


def said(pattern: str) -> list[str]:
    found = re.search(pattern, PAGE.read_text(), re.DOTALL)
    assert found is not None, f"{PAGE.name} does not say {pattern}"
    return [*found.groups()]


def replayed(folder: Path, *options: str) -> dict[str, Any]:
    document = folder / "replay.json"
    command = ["replay", str(folder / "turns.jsonl"), *options, "--check", "off"]
    assert main([*command, "--json", str(document)]) == 0
    return dict(json.loads(document.read_text()))


@pytest.mark.parametrize("row", ROWS)
def test_states_on_host_are_what_the_page_says(row: str, tmp_path: Path) -> None:
    states, tokens, pattern = ROWS[row]
    assert main(["generate", "multiturn", "-o", str(tmp_path / "turns.jsonl")]) == 0
    found = []
    for ratio in ("2", "0"):
        sizes = ("--device-tokens", tokens, "--host-ratio", ratio)
        result = replayed(tmp_path, *STATES, states, *sizes)
        found.append(f"{result['whole']['hit_rate']:.6f}")
    assert found == said(pattern)


@pytest.mark.parametrize("states", ORDERS)
def test_eviction_orders_are_what_the_page_says(states: str, tmp_path: Path) -> None:
    generated = ["generate", "multiturn", "--clients", "128", "-o", str(tmp_path / "turns.jsonl")]
    assert main(generated) == 0
    order = ("--device-tokens", "1M", "--eviction", "lru_path")
    result = replayed(tmp_path, "--mode", "hits", *STATES, states, *order)
    assert [f"{result['whole']['hit_rate']:.6f}"] == said(ORDERS[states])
