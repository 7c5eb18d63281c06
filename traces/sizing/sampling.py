"""Which part of a trace a budget has time for, and the error of replaying a part.

A part is a shorter trace of the same traffic (see formats/_with_jobs), so the machine, its sizes
and its load are those of the whole trace. The error of hits is measured on the curve of hits, which
is exact for the whole trace. The error of the requests that keep the limits is that of chance, and
the replay of the part tells it (see reporting/slo). Does not choose the requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import fmean

import numpy as np

from hicache.core.errors import CallerError

from ..curves.distances import Curve, lru_curve
from ..formats._with_jobs import sampled
from ..formats.base import Trace
from ..replaying.options import ReplayOptions
from ..sweeping.work import opened_once

_CAPACITIES = 50
# What a replay of a request and of a page costs, measured on the conversation trace: used to choose
# a part for a budget, so that the same budget gives the same part on any machine.
_REQUEST_S, _PAGE_S = 4e-4, 4e-6
_DIGITS = 2
_LONG_S = 3600.0
# the search of a machine on the whole conversation trace takes as long as so many of such replays
SEARCH = 60
_CORES = 2


@dataclass(frozen=True, slots=True)
class Error:
    """The error of hit rates on the sampled trace, absolute: mean and largest over capacities."""

    mean: float
    largest: float


def error_of(
    trace: Trace,
    some: Trace,
    exact: Curve,
    page_size: int,
    between: tuple[int, int],
) -> Error:
    """exact: the curve of the whole trace. some: the part. between: capacities in pages."""
    curve = lru_curve(some.paged(page_size))
    least, most = between
    capacities = np.geomspace(max(1, least), max(1, most), _CAPACITIES).astype(np.int64)
    of_whole, of_part = (
        one.tokens_at(capacities) / of.jobs.input_tokens
        for one, of in ((exact, trace), (curve, some))
    )
    errors = np.abs(of_whole - of_part).tolist()
    return Error(fmean(errors), max(errors))


def hold(base: ReplayOptions, recorded: Trace, rate: Fraction) -> ReplayOptions:
    """Keeps the part of the trace where replays look for it; their options. recorded: the trace
    before its load. Raises CallerError where a part does not have the load of the whole."""
    played = replace(base, sample=rate if rate < 1 else None)
    jobs = recorded.jobs
    given = base.request_rate is not None or base.concurrency is not None
    if rate < 1 and jobs.begin_together and jobs.sender is None and not given:
        raise CallerError(
            f"--sample: expected sessions that begin at different times, found that all of "
            f"{recorded.path} begin at one, so that a part has less load; give --request-rate, or "
            "leave --sample out"
        )
    opened_once.hold(played, sampled(recorded, rate))
    return played


def part_for(budget_s: float, trace: Trace, page_size: int, points: int, jobs: int) -> Fraction:
    """The part of the trace that `points` replays have time for; 1 if for all."""
    whole_s = len(trace.jobs) * _REQUEST_S + trace.jobs.input_tokens / page_size * _PAGE_S
    part = budget_s * jobs / (points * whole_s)
    if part >= 1:
        return Fraction(1)
    return max(Fraction(1, 1000), Fraction(f"{part:.{_DIGITS}g}"))


def takes_hours(trace: Trace, page_size: int) -> bool:
    """Whether the search of a machine does, on the whole trace and two cores."""
    return part_for(_LONG_S, trace, page_size, SEARCH, _CORES) < 1
