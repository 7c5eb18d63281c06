"""When the requests of a workload arrive: at their times, after the request that they follow, or
when another one has ended.

With a fixed concurrency the arrival times are not read: so many requests are in flight, and when
one ends, the next one of the workload arrives. A request that follows another may arrive when that
one has ended and its delay has passed; of those that may, the first of the workload is next. All
that happens at one instant is known before the next request is chosen.

Does not serve requests, and does not decide which replica gets one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from fractions import Fraction
from heapq import heappop, heappush

from .clock import Timer
from .workload import Job, Workload


class Arrivals:
    """See the module. speed: the trace's times are divided by it. arrive: called with each request
    when it arrives. concurrency: requests in flight; 0 for arrivals at their times."""

    def __init__(
        self,
        workload: Workload,
        clock: Timer,
        speed: Fraction,
        arrive: Callable[[Job], None],
        concurrency: int = 0,
    ) -> None:
        self._workload = workload
        self._clock = clock
        self._speed = speed
        self._arrive = arrive
        self._concurrency = concurrency
        self._left = (job for job in workload.jobs if job.after < 0)
        self._followers: dict[int, array[int]] = {}  # their places in the workload
        for place, job in enumerate(workload.jobs):
            if job.after >= 0:
                self._followers.setdefault(job.after, array("q")).append(place)
        self._ready: list[tuple[int, Job]] = []  # with a concurrency, those that may arrive
        self._in_flight = 0
        self._woken = False

    @property
    def reacts(self) -> bool:
        """Whether the end of a request may let another one arrive."""
        return bool(self._followers or self._concurrency)

    def begin(self) -> None:
        """Schedules the first arrival, and each schedules the next."""
        job = next(self._left, None)
        if job is None:
            return
        if self._concurrency:
            self._may_arrive(job)
            return
        delay_ns = max(0, self._scaled(job.arrival_ns) - self._clock.now_ns)
        self._clock.after(delay_ns, lambda: self._one(job))

    def _one(self, job: Job) -> None:
        self._arrive(job)
        self.begin()

    def after(self, job: Job) -> list[Job]:
        """The requests that follow one that has ended. They are told once."""
        if self._concurrency:
            self._in_flight -= 1
            self._wake()
        return [self._workload.jobs[place] for place in self._followers.pop(job.index, ())]

    def follow(self, job: Job) -> None:
        """Lets a request arrive that follows one that has just ended."""
        delay_ns = self._scaled(job.arrival_ns)
        if not self._concurrency:
            self._clock.after(delay_ns, lambda: self._arrive(job))
        elif delay_ns:
            self._clock.after(delay_ns, lambda: self._may_arrive(job))
        else:
            self._may_arrive(job)

    def _may_arrive(self, job: Job) -> None:
        heappush(self._ready, (job.index, job))
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._clock.after(0, self._fill)

    def _fill(self) -> None:
        """Lets requests arrive until as many are in flight as shall be. One that follows no other
        is among the ready ones until there is none left, so the first of all is found."""
        self._woken = False
        while self._in_flight < self._concurrency and self._ready:
            _, job = heappop(self._ready)
            self._in_flight += 1
            self._arrive(job)
            if job.after < 0 and (another := next(self._left, None)) is not None:
                heappush(self._ready, (another.index, another))

    def _scaled(self, time_ns: int) -> int:
        """A time of the trace in the time of the run."""
        return time_ns * self._speed.denominator // self._speed.numerator
