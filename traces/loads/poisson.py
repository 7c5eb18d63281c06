"""A Poisson process: gaps from an exponential distribution, as of many users who do not know each
other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .base import Parameter, from_gaps

SUMMARY = "exponential gaps, as of many independent users"
NEEDS_RATE = True
PARAMETERS: Mapping[str, Parameter] = {}


def arrivals(
    recorded: NDArray[np.int64],
    rate_per_s: float,
    given: Mapping[str, float],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    return from_gaps(draw.exponential(1 / rate_per_s, len(recorded) - 1))
