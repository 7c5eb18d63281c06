"""What a pass holds, as counts: tokens, query-key pairs, and the share of the busiest rank.

Does not know models or hardware.
"""

from __future__ import annotations

from collections.abc import Sequence

Chunks = Sequence[tuple[int, int]]


def real(chunks: Chunks) -> list[tuple[int, int]]:
    """The chunks that have tokens."""
    return [chunk for chunk in chunks if chunk[1] > chunk[0]]


def share(total: float, largest: float, parts: int) -> float:
    """What the busiest of some parts has, if pieces go whole to one part and are spread well: the
    average, or the largest piece where that is more."""
    average = total / parts
    return largest if largest > average else average


def met(tokens: int, sequences: int, window: int) -> int:
    """The tokens of context that are read if each sequence reads at most `window` of them; 0 means
    all."""
    return min(tokens, sequences * window) if window else tokens


def twice_pairs(start: int, end: int, window: int) -> int:
    """Twice the query-key pairs of a chunk: a query at i attends to min(i + 1, window) keys."""
    pairs = (end - start) * (start + end + 1)
    full = max(start, window - 1)  # the first query that the window limits
    if window and full < end:
        pairs -= (end - full) * (full + end + 1 - 2 * window)
    return pairs
