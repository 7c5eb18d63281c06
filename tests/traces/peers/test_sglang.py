"""SGLang as a peer: every law holds, but for what is known.

Environments are made by `hicache peers fetch sglang==0.5.23`; without one
nothing here runs.
"""

from __future__ import annotations

import pytest

from .opening import Opened, fuzzed

NEWEST = "0.5.23"


@pytest.mark.parametrize("core", ["rust", "python"])
@pytest.mark.parametrize("components", ["full", "full+swa", "full+mamba", "full+swa+mamba"])
def test_every_law_holds(opened: Opened, core: str, components: str) -> None:
    """Without KV events there is no failure in a few sequences."""
    fixed = {"core": core, "components": components, "events": False, "host": 30}
    failures, said = fuzzed(opened(f"sglang=={NEWEST}"), 6, fixed)
    assert failures == []
    for reached in ("hit on device", "hit on host", "load began", "backup began", "evict"):
        assert said["counts"][reached], reached
