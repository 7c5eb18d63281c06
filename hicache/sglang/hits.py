"""How much of a chain of pages a store can restore, by the policy of each of SGLang's pools.

`all_pages`: every page of the prefix is needed, as for an indexer. `trailing_pages`: the last so
many, as for a window or a state. SGLang takes the longest prefix that all pools can restore, and
with several ranks one that all of them can, so it is told every such length. Imports nothing of
SGLang.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Wanted(NamedTuple):
    """What a pool needs of a prefix. last: pages from its end; 0: all. unknown: a policy that is
    not known here, so no prefix will do."""

    name: str
    last: int = 0
    unknown: bool = False


class Found(NamedTuple):
    """pages: the longest prefix that all pools can restore. longest: for each pool the longest one
    that it can, where there is one. every: all lengths that all pools can restore."""

    pages: int
    longest: dict[str, int]
    every: list[int]


def ends(wanted: Wanted, there: Sequence[bool]) -> list[int]:
    """The lengths of prefixes that a pool can restore. there: its pages of the chain."""
    if wanted.unknown:
        return []
    found, run = [], 0
    for end, here in enumerate(there, 1):
        run = run + 1 if here else 0
        if run >= min(end, wanted.last or end):
            found.append(end)
    return found


def restorable(
    anchor: str, full: int, wanted: Sequence[Wanted], there: Sequence[Sequence[bool]]
) -> Found:
    """anchor: the pool of keys and values, which has the first `full` pages. there: of each other
    pool, the pages among these."""
    longest = {anchor: full} if full else {}
    every = list(range(1, full + 1))
    for one, pages in zip(wanted, there, strict=True):
        lengths = ends(one, pages)
        if lengths:
            longest[one.name] = lengths[-1]
        known = set(lengths)
        every = [length for length in every if length in known]
    return Found(every[-1] if every else 0, longest, every)
