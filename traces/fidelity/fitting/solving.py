"""Finds the factors: least squares of the logarithms of predicted over measured.

What errors beyond a tenth count grows ever more slowly, so single bad rows do not pull. Groups with
more rows than most count less for each row, so that none decides alone. Factors
are held near 1 by their spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from sim.fitted.factors import ENGINE, Factor

from .parameters import Parameter, parameters
from .samples import Sample
from .table import Floats, Table, constants_of

_ROBUST = 0.1  # error, as a logarithm, beyond which more of it counts less
_WIDE = 0.4  # the same for the first steps
_MOST, _MOST_HOST = 1.1, 3.0
_STEPS = 40
_LEAST = 1e-3  # part of the whole error that a step must save, or it is the last


@dataclass(frozen=True)
class Solution:
    """parameters and the logarithms of their factors, in the same order."""

    parameters: list[Parameter]
    logs: Floats

    def factors(self) -> list[tuple[Parameter, float]]:
        return list(zip(self.parameters, np.exp(self.logs).tolist(), strict=True))


def solve(
    samples: Sequence[Sample],
    begin: Sequence[Factor] = (),
    progress: Callable[[float], None] = lambda part: None,
) -> Solution:
    """The factors that fit best. begin: where the search begins."""
    found = parameters((one.labels, name) for one in samples for name in constants_of(one))
    table = Table(samples, found)
    spread = np.array([one.spread for one in found])
    weights = _weights(table)
    done = 0

    def errors(logs: Floats, robust: float) -> Floats:
        off = np.log(table.predict(logs) / table.measured)
        bent = np.sign(off) * np.sqrt(np.log1p((off / robust) ** 2)) * (robust / _ROBUST)
        return np.concatenate([weights * bent, logs / spread])

    def slopes(logs: Floats, robust: float) -> Floats:
        nonlocal done
        done += 1
        progress(min(1.0, done / _STEPS))
        predicted, slope = table.slopes(logs)
        off = np.log(predicted / table.measured)
        far = np.maximum(np.abs(off / robust), 1e-6)
        bend = far / (1 + far**2) / np.sqrt(np.log1p(far**2)) / _ROBUST
        rows = (weights * bend / predicted)[:, None] * slope
        return np.concatenate([rows, np.diag(1 / spread)])

    most = np.array([_most(one) for one in found])
    logs = _logs_of(found, begin)
    # a wide loss first: what is far from its rows would count as a bad row in the narrow one
    for robust, part in ((_WIDE, 0.4), (_ROBUST, 0.6)):
        logs = least_squares(
            errors,
            logs,
            slopes,
            bounds=(-1.01 * most, 1.01 * most),
            max_nfev=max(1, round(_STEPS * part)),
            x_scale=spread,
            ftol=_LEAST,
            tr_solver="lsmr",
            args=(robust,),
        ).x
    return Solution(found, logs)


def _logs_of(found: Sequence[Parameter], factors: Sequence[Factor]) -> Floats:
    """The logarithms of these factors in the order of the parameters; 0 where there is none."""
    known = {(one.constant, one.where): one.factor for one in factors}
    return np.log([known.get((one.constant, one.where), 1.0) for one in found])


def _most(parameter: Parameter) -> float:
    """How far the logarithm of a factor may go, whatever the rows say."""
    return _MOST_HOST if parameter.constant.startswith(ENGINE) else _MOST


def _weights(table: Table) -> Floats:
    sizes = Counter(one.group for one in table.samples)
    mean = len(table.samples) / len(sizes)
    of_sample = np.array([min(1.0, (sizes[one.group] / mean) ** -0.25) for one in table.samples])
    found: Floats = of_sample[table.owner]
    return found
