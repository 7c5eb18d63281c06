"""The interval of an estimated share: Wilson's score interval."""

from __future__ import annotations

from math import sqrt

Z95 = 1.959963984540054  # 97.5 % of a normal distribution lie below


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95 % interval of the probability of a hit. With no tries, nothing is known: 0 to 1."""
    if not 0 <= hits <= tries:
        raise ValueError(f"expected 0 to {tries} hits, found {hits}")
    if not tries:
        return 0.0, 1.0
    square = Z95 * Z95
    middle = (hits + square / 2) / (tries + square)
    half = Z95 / (tries + square) * sqrt(hits * (tries - hits) / tries + square / 4)
    return max(0.0, middle - half), min(1.0, middle + half)
