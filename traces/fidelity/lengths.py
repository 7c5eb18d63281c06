"""The prompt and output lengths of a published run, drawn as its benchmark drew them.

Does not read rows (see workloads). Where a source publishes no more than a mean, lengths are an
assumption, which the row's scenario names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]
_INFERENCEX_SEED = 0


class Drawn(NamedTuple):
    """Tokens of each prompt and of each output, in the order in which requests are sent."""

    inputs: Lengths
    outputs: Lengths


def fixed(isl: int, osl: int, count: int) -> Drawn:
    """Every request alike."""
    return Drawn(np.full(count, isl, dtype=np.int64), np.full(count, osl, dtype=np.int64))


def inferencex(isl: int, osl: int, count: int) -> Drawn:
    """Uniform integers from int(0.8 L) to L, prompts before outputs (InferenceX
    utils/bench_serving, sample_uniform)."""
    return _drawn(_INFERENCEX_SEED, (int(0.8 * isl), isl), (int(0.8 * osl), osl), count)


def around(isl: int, osl: int, count: int, permille: int) -> Drawn:
    """Uniform integers within so many thousandths of the mean."""
    low, high = 1000 - permille, 1000 + permille
    spans = [(length * low // 1000, length * high // 1000) for length in (isl, osl)]
    return _drawn(_INFERENCEX_SEED, spans[0], spans[1], count)


def cookbook(isl: int, osl: int, count: int) -> Drawn:
    """Uniform integers from 1 to L, as SGLang's bench_serving draws them from seed 1."""
    return _drawn(1, (1, isl), (1, osl), count)


def with_totals(drawn: Drawn, total_input: int, total_output: int) -> Drawn:
    """The same draws, scaled to the totals that a source printed."""
    return Drawn(*(_scaled(*pair) for pair in zip(drawn, (total_input, total_output), strict=True)))


def capped(isl: int, mean_output: int, most_output: int, count: int) -> Drawn:
    """Fixed prompts, and outputs spread evenly around a mean that a cap is above."""
    mean = min(mean_output, most_output)
    reach = min(mean - 1, most_output - mean)
    return _drawn(_INFERENCEX_SEED, (isl, isl), (mean - reach, mean + reach), count)


def _drawn(seed: int, inputs: tuple[int, int], outputs: tuple[int, int], count: int) -> Drawn:
    random = np.random.RandomState(seed)
    found = [random.randint(max(1, low), high + 1, size=count) for low, high in (inputs, outputs)]
    return Drawn(*(lengths.astype(np.int64) for lengths in found))


def _scaled(lengths: Lengths, total: int) -> Lengths:
    scaled: Lengths = np.rint(lengths * (total / max(1, int(lengths.sum())))).astype(np.int64)
    return np.maximum(scaled, 1)
