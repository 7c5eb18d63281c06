"""The times of the trace; with a rate, stretched or compressed evenly until they have it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .base import NS_PER_S, Parameter

SUMMARY = "the times of the trace, stretched or compressed to --request-rate"
NEEDS_RATE = False
PARAMETERS: Mapping[str, Parameter] = {}


def arrivals(
    recorded: NDArray[np.int64],
    rate_per_s: float,
    given: Mapping[str, float],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    span_ns = int(recorded[-1] - recorded[0])
    if not rate_per_s or not span_ns:
        return recorded
    wanted_ns = (len(recorded) - 1) * NS_PER_S / rate_per_s
    stretched: NDArray[np.float64] = (recorded - recorded[0]) * (wanted_ns / span_ns)
    return np.rint(stretched).astype(np.int64)
