"""Gaps from a gamma distribution with a chosen coefficient of variation (CV).

The CV is the standard deviation of the gaps over their mean: 1 is a Poisson process, above 1 is
burstier, 0 is an even distance. vLLM's and SGLang's `--burstiness` is 1 / CV^2, the shape.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .base import Parameter, from_gaps

SUMMARY = "gamma-distributed gaps with a coefficient of variation; above 1 is bursty"
NEEDS_RATE = True
PARAMETERS: Mapping[str, Parameter] = {"cv": Parameter(2.0)}


def arrivals(
    recorded: NDArray[np.int64],
    rate_per_s: float,
    given: Mapping[str, float],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    count, mean_s = len(recorded) - 1, 1 / rate_per_s
    if not given["cv"]:
        return from_gaps(np.full(count, mean_s))
    shape = 1 / given["cv"] ** 2
    return from_gaps(draw.gamma(shape, mean_s / shape, count))
