"""An LRU prefix cache in thirty naive lines, and random traces to compare with it.

A trie of single pages, searched from end to end for every victim. It shares no code and no data
structure with the core.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .rig import mooncake

BLOCK = 512


@st.composite
def random_traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Walks down a small tree of blocks; the last block of a walk may be partial."""
    records = []
    for _ in range(draw(st.integers(1, 24))):
        walk = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
        # a chained id: equal ids only behind equal ids; 0 is no child, so paths stay distinct
        ids = [
            sum((step + 1) << 2 * place for place, step in enumerate(walk[: end + 1]))
            for end in range(len(walk))
        ]
        length = BLOCK * len(ids) - draw(st.sampled_from([0, 0, 1, 200, 511]))
        records.append(mooncake(ids, length))
    return records
