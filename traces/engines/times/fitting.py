"""From the passes of an engine to the constants of a profile, by least squares.

The relative errors count, and large ones less (the sum of their sizes is made small, not of their
squares), since other programs make single passes much longer. No constant becomes negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from sim.hardware.passes import PassTimes, pairs_of

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_NS = 1e9
_ROUNDS = 30
_SMALL = 0.01  # relative errors below this count as if they were squared
_FEWEST = 8
_SWEEPS = 400
Rows = NDArray[np.float64]


class Pass(NamedTuple):
    """One pass. seconds: all of it; host: of these outside the kernels. context: rows that the
    decoding sequences attend to."""

    seconds: float
    host: float
    chunks: tuple[tuple[int, int], ...]
    decoding: int
    context: int

    @classmethod
    def of(cls, found: Sequence[Any]) -> Pass:
        """From what `engines.passes` noted."""
        seconds, host, chunks, decoding, context = found
        return cls(seconds, host, tuple((one, two) for one, two in chunks), decoding, context)

    @property
    def tokens(self) -> int:
        return self.decoding + sum(end - start for start, end in self.chunks)


@dataclass(frozen=True, slots=True)
class Host:
    """The host's nanoseconds: of each pass, each sequence in it, and each chunk."""

    step_ns: int
    sequence_ns: int
    chunk_ns: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """errors: of the whole passes, relative, signed: model / measured - 1."""

    passes: PassTimes
    host: Host
    errors: Rows


def fit(passes: Sequence[Pass], overlap: bool) -> Fitted:
    """overlap: the host works while the kernels run, so a pass lasts as long as these. Raises
    CallerError for too few passes."""
    if len(passes) < _FEWEST:
        raise CallerError(
            f"passes: expected at least {_FEWEST} to fit a profile to, found {len(passes)}; "
            "measure longer prompts or more repeats"
        )
    whole = np.array([one.seconds * _NS for one in passes])
    host_ns = np.array([one.host * _NS for one in passes])
    device_ns = np.maximum(whole if overlap else whole - host_ns, 1.0)
    used = _knots(passes)
    columns = np.array([_columns(one, used) for one in passes])
    found = least(columns, device_ns, device_ns)
    slopes = found[4:]
    points = np.cumsum(slopes * np.diff([0, *used]))
    times = PassTimes(
        pass_ns=float(found[0]),
        tokens=tuple(used),
        tokens_ns=tuple(float(one) for one in points),
        pair_ns=float(found[1]),
        context_ns=float(found[2]),
        chunk_ns=float(found[3]),
    )
    host_columns = np.array(
        [[1.0, one.decoding + len(one.chunks), len(one.chunks)] for one in passes]
    )
    # of the whole pass, since that is what a time of the host is a part of
    step, sequence, chunk = least(host_columns, host_ns, whole)
    predicted = columns @ found
    predicted = (
        np.maximum(predicted, host_columns @ (step, sequence, chunk))
        if overlap
        else predicted + host_columns @ (step, sequence, chunk)
    )
    return Fitted(times, Host(int(step), int(sequence), int(chunk)), predicted / whole - 1)


def _knots(passes: Sequence[Pass]) -> list[int]:
    """Points of the curve: those below the largest pass, each with passes of its own near it."""
    tokens = sorted({one.tokens for one in passes})
    kept: list[int] = []
    for knot in (*KNOTS, tokens[-1]):
        below = kept[-1] if kept else 0
        if knot <= tokens[-1] and knot > below and any(below < one <= knot for one in tokens):
            kept.append(knot)
    return kept


def _columns(one: Pass, knots: Sequence[int]) -> list[float]:
    """What the constants are multiplied with: the pass, pairs, rows, chunks, and the tokens in each
    stretch between two points."""
    stretches, below = [], 0
    for knot in knots:
        stretches.append(float(min(max(one.tokens - below, 0), knot - below)))
        below = knot
    return [
        1.0,
        float(pairs_of(one.chunks)),
        float(one.context),
        float(len(one.chunks)),
        *stretches,
    ]


def least(columns: Rows, measured: Rows, scale: Rows) -> Rows:
    """Constants of at least 0 whose sums of columns are near to what was measured, in parts of the
    scale. Weights lower what is far off, again and again."""
    scaled, target = columns / scale[:, None], measured / scale
    weights = np.ones(len(target))
    found = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        found = _not_negative(scaled * weights[:, None], target * weights)
        errors = np.abs(scaled @ found - target)
        weights = 1 / np.sqrt(np.maximum(errors, _SMALL))
    return found


def _not_negative(columns: Rows, target: Rows) -> Rows:
    """Least squares without negative constants (Lawson and Hanson's active sets)."""
    size = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    scaled = columns / size
    found = np.zeros(columns.shape[1])
    free = np.zeros(columns.shape[1], dtype=bool)
    for _ in range(_SWEEPS):
        slopes = scaled.T @ (target - scaled @ found)
        slopes[free] = -np.inf
        at = int(np.argmax(slopes))
        if free.all() or slopes[at] <= 1e-9 * np.linalg.norm(target):
            break
        free[at] = True
        while free.any():
            tried = np.zeros_like(found)
            tried[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            if tried[free].min() > 0:
                found = tried
                break
            falls = free & (tried <= 0)
            step = float(np.min(found[falls] / np.maximum(found[falls] - tried[falls], 1e-300)))
            found = found + step * (tried - found)
            free &= found > 1e-12
            found[~free] = 0.0
    result: Rows = found / size
    return result
