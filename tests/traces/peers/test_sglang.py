"""SGLang as a peer: every law holds, but for what is known.

Without SGLang 0.5.23 in .engines (see docs/peers.md) nothing here runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from traces.peers.session import script_fails

from .conftest import Opened, fuzzed

NEWEST = "0.5.23"
CORPUS = Path(__file__).parents[2] / "corpus/peers/sglang"


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_every_law_holds(opened: Opened, core: str, components: str) -> None:
    """Without KV events there is no failure in a few sequences."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    fixed["storage"] = "none"
    failures, said = fuzzed(opened(f"sglang=={NEWEST}"), 6, fixed)
    assert failures == []
    for reached in ("hit on device", "hit on host", "load began", "backup began", "evict"):
        assert said["counts"][reached], reached


@pytest.mark.parametrize("storage", ["pages", "zero_copy"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba"])
def test_the_store_holds_its_laws(opened: Opened, storage: str, components: str) -> None:
    """With a store, all that is reached is reached, and hybrids fail as is known."""
    fixed = {"components": components, "events": False, "storage": storage}
    failures, said = fuzzed(opened(f"sglang=={NEWEST}"), 12, fixed)
    known = set() if components == "full" else {"MATCH store anchor", "BYTES stale state"}
    assert {one["kind"] for one in failures} <= known
    for reached in ("hit in the store", "lookup began", "fetch began", "store began"):
        assert said["counts"][reached], reached


@pytest.mark.parametrize("core", ["rust", "python"])
def test_a_script_fails_in_a_process_of_its_own(opened: Opened, tmp_path: Path, core: str) -> None:
    """Whatever the process that wrote it has run before."""
    peer = opened(f"sglang=={NEWEST}")
    fuzzed(peer, 2, {"core": core, "storage": "none"})
    text = (CORPUS / "prefix-without-its-state.tape").read_text()
    assert '"core":"python"' in text
    text = text.replace('"core":"python"', f'"core":"{core}"')
    said = peer.ask({"do": "script", "tape": text, "head": ""}, PATIENCE_S)
    script = tmp_path / "script.py"
    script.write_text(said["script"])
    assert "Broken: BYTES: " in script_fails(peer, script, PATIENCE_S)
    stale = (CORPUS / "a-stale-state-is-copied.tape").read_text()  # with the calls that lead to it
    said = peer.ask({"do": "script", "tape": stale, "head": ""}, PATIENCE_S)
    assert "judge_state(" in said["script"].partition("def test()")[2]
