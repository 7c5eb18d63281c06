"""SGLang's older caches as peers: every law holds, but for what is known.

Environments are made by `hicache peers fetch sglang-legacy==0.5.20` and so on; without one nothing
here runs.
"""

from __future__ import annotations

import pytest

from .opening import Opened, fuzzed

NO_HOST = ("hit on device", "evict")
TIERS = (*NO_HOST, "hit on host", "load began", "backup began")
SOUND = [
    ("0.5.23", "radix", NO_HOST),
    ("0.5.20", "hiradix", TIERS),
    ("0.5.20", "swa", NO_HOST),
    ("0.5.13", "mamba", NO_HOST),
    ("0.5.12", "hiradix", TIERS),
]


@pytest.mark.parametrize(("release", "cache", "reached"), SOUND)
def test_every_law_holds(
    opened: Opened, release: str, cache: str, reached: tuple[str, ...]
) -> None:
    """There is no failure in a few sequences of a cache that has no known one."""
    failures, said = fuzzed(opened(f"sglang-legacy=={release}"), 8, {"cache": cache})
    assert failures == []
    assert [one for one in reached if not said["counts"][one]] == []
