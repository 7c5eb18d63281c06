"""LMCache as a peer: every law holds, but for what is known.

Environments are made by `hicache peers fetch lmcache==0.5.6`; without one
nothing here runs.
"""

from __future__ import annotations

from typing import Any

import pytest

from .opening import Opened, fuzzed

RELEASE = "lmcache==0.5.6"
QUIET: dict[str, Any] = dict.fromkeys(
    ("loses", "fails", "clears", "early", "ahead", "layerwise"), False
) | {"policy": "LRU", "hot": True}


@pytest.mark.parametrize("disk", [0, 3, 40])
def test_otherwise_every_law_holds(opened: Opened, disk: int) -> None:
    """One request at a time between its look-up and its load, and nothing fails."""
    failures, said = fuzzed(opened(RELEASE), 8, QUIET | {"disk": disk}, 60)
    assert failures == []
    assert said["operations"] == 480
    assert said["counts"]["hit on host"] > 20
    assert disk < 40 or said["counts"]["hit on disk"]
