"""Which load a machine is played at: a short replay says about how much it can do, and a search
finds the largest load that it serves.

The pilot plays the beginning of the trace without host memory. It says how much the trace offers of
what the machine can do, and how many tokens running requests hold on the device at a load that it
can serve. Both are estimates.

The bracket of the search begins at a guess, widens by ever larger steps until it has both ends, and
is halved (on a logarithmic scale) until they are within 5 %. Loads have three digits, so that they
can be typed. Which loads are served is a rule of deciding/serving.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import sqrt

from ..formats.base import Trace
from ..replaying import modes
from ..replaying.options import ReplayOptions
from ..replaying.run import Latency
from ..replaying.settings import resolve
from ..reporting.overload import load_of, slower

REQUESTS = 1_500


@dataclass(frozen=True, slots=True)
class Pilot:
    """offered: multiples of what the machine can do, 0 if it cannot be told. served: the speed at
    which it keeps up. running_tokens: that requests between admission and end do not share
    with the cache, on average. requests: that were tried."""

    offered: float
    served: Fraction
    running_tokens: int
    requests: int


def pilot(options: ReplayOptions, traces: Callable[[ReplayOptions], Trace]) -> Pilot:
    """options: without host memory. Ctrl-C raises KeyboardInterrupt.

    A machine that is overloaded is tried again at the speed that it can serve, since a long queue
    fills the device with running requests.
    """
    limit = min(options.limit or REQUESTS, REQUESTS)
    options = replace(options, limit=limit, check="off", sample=None)
    trace = traces(options)
    latency, speed = _replayed(options, trace)
    load = load_of(trace.jobs, latency.requests)
    if load.overloaded and options.request_rate is None:
        speed = Fraction(slower(load, speed))
        latency, _ = _replayed(replace(options, speed=speed), trace)
    return Pilot(load.offered, speed, _running(latency), len(trace.jobs))


def _replayed(options: ReplayOptions, trace: Trace) -> tuple[Latency, Fraction]:
    """The times of a replay, and its speed."""
    settings, paged = resolve(options, trace)
    run = modes.run(
        trace,
        paged,
        settings,
        None,
        time.perf_counter(),
        shown=lambda *_: nullcontext(lambda done: None),
    )
    if run.interrupted or run.latency is None:
        raise KeyboardInterrupt
    return run.latency, settings.speed


def _running(latency: Latency) -> int:
    """Tokens of running requests that they do not share with the cache, by Little's law."""
    held = sum(
        (one.finish_ns - one.arrival_ns - one.queue_ns)
        * (one.input_length - one.device_tokens - one.host_tokens + one.output_length)
        for one in latency.requests
    )
    return held // latency.makespan_ns if latency.makespan_ns else 0


WITHIN = 1.05  # the ends of a bracket that is narrow enough
_STEP = 1.4  # the first one; each further one is the square of the one before
_MOST_STEPS = 5  # in one direction
_DIGITS = 3


@dataclass(slots=True)
class Search:
    """start: the first load. tried: whether each load was served."""

    start: Fraction
    tried: dict[Fraction, bool] = field(default_factory=dict)

    @property
    def served(self) -> Fraction | None:
        """The largest load that is served, below every one that is not."""
        low = [load for load, good in self.tried.items() if good]
        high = self.refused
        return max((load for load in low if high is None or load < high), default=None)

    @property
    def refused(self) -> Fraction | None:
        """The smallest load that is not served."""
        return min((load for load, good in self.tried.items() if not good), default=None)

    def next(self) -> Fraction | None:
        """The load to try next; None if the bracket is narrow enough, or has no other end."""
        served, refused = self.served, self.refused
        if served is None and refused is None:
            return typed(float(self.start))
        if served is not None and refused is not None:
            if refused <= served * Fraction(WITHIN):
                return None
            return typed(sqrt(float(served) * float(refused)))
        steps = len(self.tried)
        if steps > _MOST_STEPS:
            return None
        by = _STEP ** (2 ** (steps - 1))
        return typed(float(served) * by if served is not None else float(refused or 0) / by)


def typed(load: float) -> Fraction:
    """The load with three digits."""
    return Fraction(f"{load:.{_DIGITS}g}")
