"""An LRU prefix cache in thirty naive lines, and random traces to compare with it.

A trie of single pages, searched from end to end for every victim. It shares no code and no data
structure with the core.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from traces.formats.base import Paged

from .rig import mooncake

BLOCK = 512


def simulate_lru(paged: Paged, capacity: int) -> list[int]:
    """Hit tokens per request, requests one after another, each within the capacity."""
    last_use: dict[tuple[bytes, ...], int] = {}  # a resident page, by the path to it
    tick = 0
    hits = []
    for job in paged.jobs:
        key = paged.prompt_key(job)
        path: tuple[bytes, ...] = ()
        pages = []
        for start in range(0, len(key.raw), key.stride):
            path = (*path, key.raw[start : start + key.stride])
            pages.append(path)
        leading = 0
        while leading < len(pages) and pages[leading] in last_use:
            leading += 1
        hits.append(min(leading * paged.page_size, job.input_length))
        for page in pages[leading:]:
            if len(last_use) == capacity:
                inner = {resident[:-1] for resident in last_use}
                leaves = [
                    resident
                    for resident in last_use
                    if resident not in inner and resident not in pages
                ]
                del last_use[min(leaves, key=last_use.__getitem__)]
            last_use[page] = -1
        for page in reversed(pages):  # tail first: the root ends most recent
            tick += 1
            last_use[page] = tick
    return hits


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
