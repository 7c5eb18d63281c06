"""SGLang and vLLM as targets: every law holds, but for what is known.

Without the newest releases in .engines (see docs/fuzzing.md) nothing here runs.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

from .conftest import Opened, fuzzed, script_of

SGLANG, VLLM = "sglang==0.5.23", "vllm==0.32.0"
CORPUS = Path(__file__).parents[2] / "corpus/engines"
HOST = ("hit on device", "hit on host", "load began", "backup began", "evict")
STORE = ("hit in the store", "lookup began", "fetch began", "store began")
CALM = {"model": "full", "page": 4, "reserve": True}  # whole prompts must fit
REMOTE = CALM | {"connector": "remote", "pages": 40, "recompute": True, "entire": False, "loses": 3}
OURS = CALM | {"connector": "hicache", "pages": 16, "requests": 4, "policy": "fcfs", "store": True}
MODELS = "full+full", "full2+window", "full+align"
MOVED = "preempted, aborted, load began, backup fails, fetch began"


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("storage", ["none", "zero_copy", "hicache"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_laws_hold_in_sglang(opened: Opened, components: str, storage: str, core: str) -> None:
    """All that is reached is reached, and hybrids with a store fail as is known."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    failures, counts = fuzzed(opened(SGLANG), 8, {**fixed, "storage": storage})
    hybrid = storage != "none" and components != "full"
    known = {"MATCH store anchor", "BYTES stale state"} if hybrid else set()
    assert {failure["kind"] for failure in failures} <= known
    assert all(counts[item] for item in (HOST if storage == "none" else STORE))


@pytest.mark.parametrize("core", ["rust", "python"])
def test_a_script_of_sglang_fails_in_a_process_of_its_own(opened: Opened, core: str) -> None:
    """Whatever the process that wrote it has run before."""
    session = opened(SGLANG)
    fuzzed(session, 2, {"core": core, "storage": "none"})
    for name in ("prefix-without-its-state", "a-stale-state-is-copied", "stored-twice-on-host"):
        text = (CORPUS / "sglang" / f"{name}.sequence").read_text()
        script = script_of(session, text.replace('"core":"python"', f'"core":"{core}"'))
        law = "EVENT-MIRROR" if name == "stored-twice-on-host" else "BYTES"
        assert f"Broken: {law}: " in session.script_fails(script, PATIENCE_S)
        assert "release_kv_cache(" in script.partition("def test()")[2]  # the calls that lead to it


@pytest.mark.parametrize(
    ("count", "fixed", "reached"),
    [
        (12, CALM | {"connector": ""}, "ended, preempted"),
        (12, CALM | {"connector": "cpu"}, "load began"),
        (16, REMOTE, "failed loads"),
        (16, REMOTE | {"model": "full+window"}, "failed loads"),
        *((30, OURS | {"model": model}, MOVED) for model in MODELS),
    ],
)
def test_laws_hold_in_vllm(opened: Opened, count: int, fixed: dict[str, Any], reached: str) -> None:
    failures, counts = fuzzed(opened(VLLM), count, fixed)
    assert failures == []
    assert all(counts[part] for part in reached.split(", "))


def test_the_vllm_before_is_played(opened: Opened) -> None:
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
def test_a_script_of_vllm_fails_by_itself(opened: Opened, name: str, law: str) -> None:
    script = script_of(opened(VLLM), (CORPUS / "vllm" / f"{name}.sequence").read_text())
    last = opened(VLLM).script_fails(script, PATIENCE_S).rpartition("\n")[2]
    assert last.startswith(f"Broken: {law}")
