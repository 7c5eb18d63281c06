"""How much TTFT grows with the host's time of a request, from two recordings.

Where requests come in bunches, one waits for the host's time of those before it, and the longer
that is, the more of them come together. So a second of it may cost more than a second of TTFT. What
a recording with the fitted constants has more than the first one foretells under the same constants
is this cost. Does not replay (see recording) or fit (see solving).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sim.fitted.factors import ENGINE, Factor, total

from ..figures import TTFT
from .parameters import Parameter
from .samples import Sample, Target
from .table import Table

_REQUEST = "request_host_ns"
_LEAST_S = 1e-4  # of change in the host's time, below which it tells nothing
_MOST = 8.0  # seconds of TTFT for a second of it
_NS = 1e-9


def with_response(
    before: Sequence[Sample], now: Sequence[Sample], factors: Sequence[Factor]
) -> list[Sample]:
    """`now`, with what each target grows by in `requests`. before: from replays with the defaults.
    now: of rows among them, from replays with `factors`."""
    known = {one.row: one for one in before}
    old = _predicted([known[one.row] for one in now], factors)
    new = _predicted(now, factors)
    found = []
    for sample in now:
        default_s = sample.host[_REQUEST] * _NS
        factor = total(ENGINE + _REQUEST, sample.labels.all, factors)
        host_s = default_s * factor
        targets = []
        for target in sample.figures:
            grown = next(new) - next(old)
            change = host_s - default_s
            if target.what == TTFT and abs(change) >= _LEAST_S:
                target = _grown(target, 1 + grown / change, host_s)
            targets.append(target)
        found.append(replace(sample, figures=tuple(targets)))
    return found


def _grown(target: Target, by: float, host_s: float) -> Target:
    """Predicts the same as before where the host takes `host_s`."""
    requests = min(max(by, target.requests), _MOST)
    return replace(
        target, requests=requests, rest=target.rest - (requests - target.requests) * host_s
    )


def _predicted(samples: Sequence[Sample], factors: Sequence[Factor]) -> Iterator[float]:
    table = Table(samples, [Parameter(one.constant, one.where, 1.0) for one in factors])
    return iter(table.predict(np.log([one.factor for one in factors])).tolist())
