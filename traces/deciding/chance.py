"""What chance does: the figures of several replays of one point, and whether two points differ.

A point is replayed with several draws of what is random. Its figure is the median, its range from
the least to the most. Two points differ in a figure if their ranges do not meet. Where only one of
them was replayed several times, the other's range is taken to be as wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

SAME = "no difference that these replays can show"


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def differ(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two points differ in a figure. Of two that were replayed once, nothing is known of
    chance, and any difference counts."""
    if not one or not other:
        return False
    wide = max(max(one) - min(one), max(other) - min(other))
    low, high = _range(one, wide), _range(other, wide)
    return low[1] < high[0] or high[1] < low[0]


def span(values: Sequence[float], told: Callable[[float], str]) -> str:
    """The median, and the range where there is one."""
    if len(values) < 2:
        return told(values[0])
    return f"{told(median(values))} ({told(min(values))} to {told(max(values))})"


def _range(values: Sequence[float], wide: float) -> tuple[float, float]:
    if len(values) == 1 and wide:
        return values[0] - wide / 2, values[0] + wide / 2
    return min(values), max(values)
