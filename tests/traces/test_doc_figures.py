"""Figures of docs/benchmarks.md: what the page says is what its commands print.

The drawn lives of docs/figures.md take minutes: tests/bench/test_bench_lives.py compares them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from traces.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
CLIENTS = "--num-clients 10 --num-rounds 12 --request-tokens 256 --output-tokens 256"
SIZES = "--components full,mamba --mamba-states 50 --device-tokens 1M --check off"


@pytest.mark.parametrize("order", ["lru", "lru_path"])
def test_states_on_host_are_what_the_page_says(order: str, tmp_path: Path) -> None:
    trace, out = str(tmp_path / "turns.jsonl"), tmp_path / "out.json"
    generated = f"bench-multiturn {CLIENTS} --enable-round-barrier"
    assert main(["generate", *generated.split(), "-o", trace]) == 0
    found = []
    for ratio in ("2", "0"):
        options = f"{SIZES} --eviction {order} --host-ratio {ratio}"
        options += " --times pure-roofline --engine plain"  # which nothing changes
        assert main(["replay", trace, *options.split(), "--json", str(out)]) == 0
        found.append(f"{json.loads(out.read_text())['whole']['hit_rate']:.6f}")
    said = re.search(rf"\| {order} \| ([\d.]+) \| ([\d.]+) \|", PAGE.read_text())
    assert said is not None
    assert found == [*said.groups()]
