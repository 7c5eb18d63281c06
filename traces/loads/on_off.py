"""Bursts: a Poisson process while a phase is on, nothing while it is off, over and over.

The rate while it is on is the mean rate times (on + off) / on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError

from .base import Parameter, from_gaps

SUMMARY = "bursts of exponential gaps, and nothing between them"
NEEDS_RATE = True
PARAMETERS: Mapping[str, Parameter] = {
    "on": Parameter(10.0, is_time=True),
    "off": Parameter(30.0, is_time=True),
}


def arrivals(
    recorded: NDArray[np.int64],
    rate_per_s: float,
    given: Mapping[str, float],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    on_s, off_s = given["on"], given["off"]
    if not on_s:
        raise CallerError("on-off: expected a time above 0 for on, found 0; give one such as on=5s")
    gaps_s = draw.exponential(on_s / (on_s + off_s) / rate_per_s, len(recorded) - 1)
    busy_ns = from_gaps(gaps_s)  # the time without the phases that are off
    phases = busy_ns // round(on_s * 1e9)
    return busy_ns + phases * round(off_s * 1e9)
