"""One request after another at an even distance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .base import Parameter, from_gaps

SUMMARY = "an even distance between requests"
NEEDS_RATE = True
PARAMETERS: Mapping[str, Parameter] = {}


def arrivals(
    recorded: NDArray[np.int64],
    rate_per_s: float,
    given: Mapping[str, float],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    return from_gaps(np.full(len(recorded) - 1, 1 / rate_per_s))
