"""All requests arrive at the start: offline work, or the longest queue that the trace can make."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .base import Parameter

SUMMARY = "all requests at the start"
NEEDS_RATE = False
PARAMETERS: Mapping[str, Parameter] = {}


def arrivals(
    recorded: NDArray[np.int64],
    rate_per_s: float,
    given: Mapping[str, float],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    return np.zeros_like(recorded)
