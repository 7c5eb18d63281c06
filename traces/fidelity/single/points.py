"""Decode times over context that a source publishes as a straight line: `itl_ms_at_1k` and so on.

Does not replay anything (see predicting).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..figures import TPOT, Figure
from ..rows import Row

_FIELD = re.compile(r"itl_ms_at_(\d+)k")
# 32k is 32,768 tokens in the source's own fit, and 125k is 125,000
_EXACT = {1: 1024, 32: 32_768}
_MS = 1e-3


def is_fit(row: Row) -> bool:
    return any(_FIELD.fullmatch(name) for name in row.metrics)


def figures(row: Row) -> Iterator[tuple[Figure, int]]:
    """Each point of the line in seconds, and its context in tokens."""
    for name, value in row.metrics.items():
        if found := _FIELD.fullmatch(name):
            thousands = int(found[1])
            context = _EXACT.get(thousands, 1000 * thousands)
            yield Figure(name, TPOT, "itl", "mean", value * _MS, judged=True), context
