"""Whether the trace offers more than the machine can do. docs/replay.md explains it for users.

    offered load = (last first token - first arrival) / (last arrival - first arrival)
    queueing     = time that requests waited for a forward pass / time to first token, summed

Only requests with an arrival time count for the load: a request that waits for another one (a
closed loop) slows down with the machine. A machine that keeps up begins its answers as fast as
requests arrive, so its offered load is 1, plus the latency of the last request. A machine with half
the speed that the trace needs takes twice as long. It is called overloaded if requests spent most
of the time to their first token in the queue, and if it took a tenth longer than the arrivals or
its queue was long nearly all the time: nine tenths of the requests waited ten times as long as
their passes took. A little more load than the machine can do makes a long queue long before it
makes a long run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, log10

from sim.engine.sequence import RequestResult

from ..expected.table import MOST_QUEUEING
from ..formats._jobs import Jobs
from ..replaying.run import Run
from ..replaying.settings import Settings
from ..results.record import LoadFigures

MOST_LOAD = 1.1
_MOST_WAITING = 0.9
_LEAST_REQUESTS = 10
_ROOM = 0.9  # of what the machine can do, for the advice


@dataclass(frozen=True, slots=True)
class Load:
    """offered: multiples of what the machine can do, 0 if it cannot be told. See the module.

    waits: the time in the queue as a multiple of the time that passes computed; 0 without passes.
    waiting: the part of the requests that waited ten times as long as their passes took.
    """

    offered: float
    queueing: float
    waits: float = 0.0
    waiting: float = 0.0

    @property
    def overloaded(self) -> bool:
        too_much = self.offered > MOST_LOAD or self.waiting > _MOST_WAITING
        return too_much and self.queueing > MOST_QUEUEING

    @property
    def figures(self) -> LoadFigures:
        return LoadFigures(self.offered or None, self.queueing, self.overloaded)

    @property
    def queued(self) -> bool:
        """Whether requests mostly wait although the machine is not overloaded."""
        return not self.overloaded and self.queueing > MOST_QUEUEING


def load_of_run(jobs: Jobs, settings: Settings, run: Run) -> Load | None:
    """The load that the trace offered; None without a clock."""
    latency, concurrency = run.latency, settings.load.concurrency
    if latency is None:
        return None
    return load_of(jobs, latency.requests, concurrency)


def load_of(jobs: Jobs, results: Sequence[RequestResult], concurrency: int = 0) -> Load:
    """The load of the requests that were served. jobs: of the trace, at least these. concurrency: a
    fixed one, with which every request waits for another."""
    timed = (jobs.afters < 0) & (not concurrency)
    served = [one for one in results if timed[one.request]]
    ttft_ns = sum(one.first_token_ns - one.arrival_ns for one in results)
    queue_ns = sum(one.queue_ns for one in results)
    compute_ns = sum(one.compute_ns for one in results)
    queueing = queue_ns / ttft_ns if ttft_ns else 0.0
    waits = queue_ns / compute_ns if compute_ns else 0.0
    first = min((one.arrival_ns for one in served), default=0)
    span_ns = max((one.arrival_ns for one in served), default=0) - first
    if len(served) < _LEAST_REQUESTS or not span_ns:
        return Load(0.0, queueing, waits)
    load = (max(one.first_token_ns for one in served) - first) / span_ns
    long = sum(11 * one.queue_ns > 10 * (one.first_token_ns - one.arrival_ns) for one in served)
    return Load(load, queueing, waits, long / len(served))


def eased(load: Load, settings: Settings) -> str:
    """The option with which the machine keeps up."""
    rate = settings.load.request_rate
    if rate is not None:
        return f"--request-rate {slower(load, rate)}"
    return f"--speed {slower(load, settings.speed)}"


def slower(load: Load, speed: Fraction) -> str:
    """The speed or rate at which the machine keeps up: one digit, rounded down."""
    wanted = float(speed) * _ROOM / load.offered
    digits = -floor(log10(wanted))
    return f"{floor(wanted * 10**digits) / 10**digits:.{max(0, digits)}f}"
