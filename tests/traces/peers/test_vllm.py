"""vLLM as a target: where it has no known failure, every law holds.

Without vLLM 0.32.0 in .engines (see docs/fuzzing.md) nothing here runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

from .conftest import Opened, fuzzed, script_of

NEWEST = "vllm==0.32.0"
TAPES = Path(__file__).parents[2] / "corpus/peers/vllm"
CALM = {"model": "full", "page": 4, "reserve": True}  # whole prompts must fit
REMOTE = CALM | {"connector": "remote", "pages": 40, "recompute": True, "entire": False, "loses": 3}
OURS = CALM | {"connector": "hicache", "pages": 16, "requests": 4, "policy": "fcfs", "store": True}
MODELS = "full+full", "full2+window", "full+align"
MOVED = "preempted, aborted, load began, backup fails, fetch began"


@pytest.mark.parametrize(
    ("count", "fixed", "reached"),
    [
        (12, CALM | {"connector": ""}, "ended, preempted"),
        (12, CALM | {"connector": "cpu"}, "load began"),
        (16, REMOTE, "failed loads"),
        (16, REMOTE | {"model": "full+window"}, "failed loads"),
        *((30, OURS | {"model": one}, MOVED) for one in MODELS),
    ],
)
def test_every_law_holds(opened: Opened, count: int, fixed: dict[str, Any], reached: str) -> None:
    failures, counts = fuzzed(opened(NEWEST), count, fixed)
    assert failures == []
    assert all(counts[one] for one in reached.split(", "))


def test_the_release_before_is_played(opened: Opened) -> None:
    failures, counts = fuzzed(opened("vllm==0.31.0"), 4, CALM | {"connector": "cpu"})
    assert failures == []
    assert counts["load began"]


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("loads-deadlock", "PROGRESS"),
        ("one-token-loaded-for-ever", "PROGRESS"),
        ("computed-again-without-its-window", "BYTES"),
    ],
)
def test_a_script_fails_by_itself(opened: Opened, name: str, law: str) -> None:
    script = script_of(opened(NEWEST), (TAPES / f"{name}.tape").read_text())
    last = opened(NEWEST).script_fails(script, PATIENCE_S).rpartition("\n")[2]
    assert last.startswith(f"Broken: {law}")
