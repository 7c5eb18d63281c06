"""A short replay of the beginning of a trace, from which the load of all others is chosen.

It says how much the trace offers of what the machine can do, and how many tokens running requests
hold on the device at a load that it can serve. Both are estimates: they hold for the beginning,
without host memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

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
    run = modes.run(trace, paged, settings, None, time.perf_counter(), shown=_quiet)
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


@contextmanager
def _quiet(label: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda done: None
