"""What the generators of serving benchmarks share: rates, drawn lengths, times of arrival.

The lengths are drawn as SGLang's bench_serving.py draws them, with NumPy's legacy generator, so
the same seed gives the lengths of the script. Does not define any workload.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from sim.sending import SenderOptions
from traces.terminal.options import OptionRecord, at_least
from traces.terminal.rows import option

_LEAST_RATE, _MOST_RATE = 1e-6, 1e6
_US_PER_S = 1_000_000


def rate(text: str) -> float:
    """Requests per second, or `inf` for all at once."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if found != math.inf and not _LEAST_RATE <= found <= _MOST_RATE:
        raise argparse.ArgumentTypeError(
            f"expected requests per second such as 16 or 0.5, or inf, found {text!r}"
        )
    return found


def part(text: str) -> float:
    """A number from 0 to 1."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found {text!r}")
    return found


def number(says: str, usual: int, metavar: str = "N") -> Any:
    """The option of a number that is at least 1."""
    return option(says, at_least(1), metavar, default=usual)


def tokens(says: str, usual: int) -> Any:
    """The option of a length."""
    return number(says, usual, "TOKENS")


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """The options that every dataset of bench_serving.py has."""

    request_rate: float = option("mean requests per second, or inf", rate, "RATE", default=math.inf)
    max_concurrency: int = option("most in progress; 0: no limit", at_least(0), "N", default=0)
    seed: int = option("seed of all random draws", at_least(0), "N", default=1)


def sender_of(max_concurrency: int) -> SenderOptions | None:
    return SenderOptions(max_parallel=max_concurrency) if max_concurrency else None


def lengths(
    draw: np.random.RandomState, tokens: int, range_ratio: float, count: int
) -> NDArray[np.int64]:
    """Whole numbers from `range_ratio` of the tokens, at least 1, to all of them."""
    least = max(int(tokens * range_ratio), 1)
    return draw.randint(least, tokens + 1, size=count).astype(np.int64)


def arrivals_ms(draw: np.random.RandomState, per_s: float, count: int) -> NDArray[np.float64]:
    """Times of a Poisson process, in whole microseconds; all 0 at an infinite rate."""
    if per_s == math.inf:
        return np.zeros(count)
    gaps = draw.exponential(1 / per_s, size=max(count - 1, 0))
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    rounded: NDArray[np.float64] = np.round(times * _US_PER_S) / 1000
    return rounded


def seeded(seed: int) -> np.random.RandomState:
    """NumPy's legacy generator, which `np.random.seed` sets. Raises CallerError."""
    if seed >= 1 << 32:
        raise CallerError(f"--seed: expected less than 2^32, found {seed}; choose a smaller one")
    return np.random.RandomState(seed)
