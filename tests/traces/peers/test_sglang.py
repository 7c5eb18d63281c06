"""SGLang as a target: every law holds, but for what is known.

Without SGLang 0.5.23 in .engines (see docs/fuzzing.md) nothing here runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

from .conftest import Opened, fuzzed, script_of

NEWEST = "sglang==0.5.23"
CORPUS = Path(__file__).parents[2] / "corpus/peers/sglang"
HOST = ("hit on device", "hit on host", "load began", "backup began", "evict")
STORE = ("hit in the store", "lookup began", "fetch began", "store began")


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("storage", ["none", "zero_copy", "hicache"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_every_law_holds(opened: Opened, components: str, storage: str, core: str) -> None:
    """All that is reached is reached, and hybrids with a store fail as is known."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    failures, counts = fuzzed(opened(NEWEST), 8, {**fixed, "storage": storage})
    hybrid = storage != "none" and components != "full"
    known = {"MATCH store anchor", "BYTES stale state"} if hybrid else set()
    assert {one["kind"] for one in failures} <= known
    assert all(counts[one] for one in (HOST if storage == "none" else STORE))


@pytest.mark.parametrize("core", ["rust", "python"])
def test_a_script_fails_in_a_process_of_its_own(opened: Opened, core: str) -> None:
    """Whatever the process that wrote it has run before."""
    session = opened(NEWEST)
    fuzzed(session, 2, {"core": core, "storage": "none"})
    for name in ("prefix-without-its-state", "a-stale-state-is-copied", "stored-twice-on-host"):
        text = (CORPUS / f"{name}.tape").read_text()
        script = script_of(session, text.replace('"core":"python"', f'"core":"{core}"'))
        law = "EVENT-MIRROR" if name == "stored-twice-on-host" else "BYTES"
        assert f"Broken: {law}: " in session.script_fails(script, PATIENCE_S)
        assert "release_kv_cache(" in script.partition("def test()")[2]  # the calls that lead to it
