"""SGLang as a peer: every law holds, but for what is known.

Without SGLang 0.5.23 in .engines (see docs/engines_fuzzed.md) nothing here runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

from .conftest import Opened, fuzzed, script_of

NEWEST = "0.5.23"
CORPUS = Path(__file__).parents[2] / "corpus/peers/sglang"


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_every_law_holds(opened: Opened, core: str, components: str) -> None:
    """Without KV events there is no failure in a few sequences."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    fixed["storage"] = "none"
    failures, counts = fuzzed(opened(f"sglang=={NEWEST}"), 6, fixed)
    assert failures == []
    for reached in ("hit on device", "hit on host", "load began", "backup began", "evict"):
        assert counts[reached], reached


@pytest.mark.parametrize("storage", ["pages", "zero_copy"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba"])
def test_the_store_holds_its_laws(opened: Opened, storage: str, components: str) -> None:
    """With a store, all that is reached is reached, and hybrids fail as is known."""
    fixed = {"components": components, "events": False, "storage": storage}
    failures, counts = fuzzed(opened(f"sglang=={NEWEST}"), 12, fixed)
    known = set() if components == "full" else {"MATCH store anchor", "BYTES stale state"}
    assert {one["kind"] for one in failures} <= known
    for reached in ("hit in the store", "lookup began", "fetch began", "store began"):
        assert counts[reached], reached


@pytest.mark.parametrize("core", ["rust", "python"])
def test_a_script_fails_in_a_process_of_its_own(opened: Opened, core: str) -> None:
    """Whatever the process that wrote it has run before."""
    session = opened(f"sglang=={NEWEST}")
    fuzzed(session, 2, {"core": core, "storage": "none"})
    text = (CORPUS / "prefix-without-its-state.tape").read_text()
    assert '"core":"python"' in text
    script = script_of(session, text.replace('"core":"python"', f'"core":"{core}"'))
    assert "Broken: BYTES: " in session.script_fails(script, PATIENCE_S)
    stale = (CORPUS / "a-stale-state-is-copied.tape").read_text()  # with the calls that lead to it
    assert "judge_state(" in script_of(session, stale).partition("def test()")[2]
