"""vLLM as a peer: every law holds, but for what is known.

Without vLLM 0.32.0 in .engines (see docs/engines_fuzzed.md) nothing here runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

from .conftest import Opened, fuzzed, script_of

NEWEST = "0.32.0"
TAPES = Path(__file__).parents[2] / "corpus/peers/vllm"


@pytest.mark.parametrize("connector", ["", "cpu", "files"])
def test_the_scheduler_holds_every_law(opened: Opened, connector: str) -> None:
    """Full attention alone has no known failure, where whole prompts must fit."""
    fixed = {"model": "full", "connector": connector, "reserve": True, "page": 4}
    failures, counts = fuzzed(opened(f"vllm=={NEWEST}"), 12, fixed)
    assert failures == []
    assert counts["ended"] > 50
    assert not connector or counts["load began"]


@pytest.mark.parametrize("model", ["full", "full+window"])
def test_loads_that_fail_are_computed(opened: Opened, model: str) -> None:
    """Prompts that are loaded to their last token, and small pools, have known failures."""
    fixed = {"model": model, "connector": "remote", "page": 4, "pages": 40, "recompute": True}
    fixed |= {"entire": False, "loses": 3, "reserve": True}
    failures, counts = fuzzed(opened(f"vllm=={NEWEST}"), 16, fixed)
    assert failures == []
    assert counts["failed loads"] > 3


@pytest.mark.parametrize("model", ["full+full", "full2+window", "full+align"])
def test_our_own_connector_holds_every_law(opened: Opened, model: str) -> None:
    """Where whole prompts must fit, and requests run in their order: vLLM has known failures in
    others."""
    fixed = {"model": model, "connector": "hicache", "reserve": True, "page": 4, "store": True}
    fixed |= {"pages": 16, "requests": 4, "policy": "fcfs"}
    failures, counts = fuzzed(opened(f"vllm=={NEWEST}"), 40, fixed)
    assert failures == []
    for reached in ("preempted", "aborted", "load began", "backup fails", "fetch began"):
        assert counts[reached], reached


@pytest.mark.parametrize("name", ["loads-deadlock", "one-token-loaded-for-ever"])
def test_the_script_of_what_never_ends_fails_by_itself(opened: Opened, name: str) -> None:
    session = opened(f"vllm=={NEWEST}")
    script = script_of(session, (TAPES / f"{name}.tape").read_text())
    last = session.script_fails(script, PATIENCE_S).rpartition("\n")[2]
    assert last.startswith("Broken: PROGRESS")
