"""When the requests of a workload arrive: at their times, or after the request that they follow.

Does not serve requests, and does not decide which replica gets one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from fractions import Fraction

from .clock import Timer
from .workload import Job, Workload


class Arrivals:
    """See the module. speed: the trace's times are divided by it. arrive: called with each request
    when it arrives."""

    def __init__(
        self, workload: Workload, clock: Timer, speed: Fraction, arrive: Callable[[Job], None]
    ) -> None:
        self._workload = workload
        self._clock = clock
        self._speed = speed
        self._arrive = arrive
        self._left = (job for job in workload.jobs if job.after < 0)
        self._followers: dict[int, array[int]] = {}  # their places in the workload
        for place, job in enumerate(workload.jobs):
            if job.after >= 0:
                self._followers.setdefault(job.after, array("q")).append(place)

    @property
    def reacts(self) -> bool:
        """Whether the end of a request may let another one arrive."""
        return bool(self._followers)

    def begin(self) -> None:
        """Schedules the first arrival, and each schedules the next."""
        job = next(self._left, None)
        if job is not None:
            delay_ns = max(0, self._scaled(job.arrival_ns) - self._clock.now_ns)
            self._clock.after(delay_ns, lambda: self._one(job))

    def _one(self, job: Job) -> None:
        self._arrive(job)
        self.begin()

    def after(self, job: Job) -> list[Job]:
        """The requests that follow one that has ended. They are told once."""
        return [self._workload.jobs[place] for place in self._followers.pop(job.index, ())]

    def follow(self, job: Job) -> None:
        """Lets a request arrive that follows one that has just ended."""
        self._clock.after(self._scaled(job.arrival_ns), lambda: self._arrive(job))

    def _scaled(self, time_ns: int) -> int:
        """A time of the trace in the time of the run."""
        return time_ns * self._speed.denominator // self._speed.numerator
