"""When the requests of a workload arrive: at their times, after the request that they follow, when
another one has ended, or when the client of a benchmark sends them (`Sender`).

With a fixed concurrency the arrival times are not read: so many requests are in flight, and when
one ends, the next one of the workload arrives. A request that follows another may arrive when that
one has ended and its delay has passed; of those that may, the first of the workload is next. All
that happens at one instant is known before the next request is chosen.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from math import log

from .clock import Timer
from .content import draw
from .options import WorldOptions
from .workload import Job, SenderOptions, Workload


class Arrivals:
    """See the module. arrive: called with each request when it arrives. sender: how a client sends
    them; None if it waits for nothing."""

    def __init__(
        self,
        workload: Workload,
        clock: Timer,
        options: WorldOptions,
        arrive: Callable[[Job], None],
        sender: SenderOptions | None,
    ) -> None:
        self._workload = workload
        self._clock = clock
        self._speed = options.speed
        self._concurrency = options.concurrency
        self._sender: Sender | None = None
        if sender is not None:
            self._sender = Sender(sender, workload.jobs, clock, options.speed, arrive)
            arrive = self._sender.ready
        self._arrive = arrive
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
        return bool(self._followers or self._concurrency or self._sender)

    def begin(self) -> None:
        """Schedules the first arrival, and each schedules the next."""
        job = next(self._left, None)
        if job is None:
            return
        if self._concurrency:
            self._may_arrive(job)
            return
        delay_ns = max(0, scaled(self._speed, job.arrival_ns) - self._clock.now_ns)
        self._clock.after(delay_ns, lambda: self._due(job))

    def _due(self, job: Job) -> None:
        self._arrive(job)
        self.begin()

    def after(self, job: Job) -> list[Job]:
        """A request has ended. Returns those that follow it, once."""
        if self._sender is not None:
            self._sender.ended(job)
        if self._concurrency:
            self._in_flight -= 1
            self._wake()
        return [self._workload.jobs[place] for place in self._followers.pop(job.index, ())]

    def follow(self, job: Job) -> None:
        """Lets a request arrive that follows one that has just ended."""
        delay_ns = scaled(self._speed, job.arrival_ns)
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


_LOOK_AGAIN_NS = 50_000_000
_NS_PER_US = 1_000
_DRAWN = 1 << 53
_PAUSES_BACK = 100  # as many uniform pauses forget when they began


class Sender:
    """See the module. speed: the trace's times are divided by it. send: called with each request
    when it is sent."""

    def __init__(
        self,
        options: SenderOptions,
        jobs: Sequence[Job],
        clock: Timer,
        speed: Fraction,
        send: Callable[[Job], None],
    ) -> None:
        self._options = options
        self._clock = clock
        self._speed = speed
        self._send = send
        self._draws = 0
        self._turns = _turns_of(jobs) if options.barrier else array("i")
        self._left = (
            Counter(self._turns[job.index] for job in jobs) if options.barrier else Counter()
        )
        self._turn = 0
        self._waiting: list[Job] = []
        self._ready: list[Job] = []
        self._in_progress = 0
        self._look_ns = 0
        self._expected_ns = -1  # the look that the clock knows of

    def ready(self, job: Job) -> None:
        """A request may be sent, if its turn has begun."""
        if self._options.barrier and self._turns[job.index] > self._turn:
            self._waiting.append(job)
            return
        self._catch_up()
        self._ready.append(job)
        self._go_on()

    def ended(self, job: Job) -> None:
        """A request has ended. Those that follow it become ready after this call."""
        self._catch_up()
        self._in_progress -= 1
        self._go_on()
        if self._options.barrier:
            turn = self._turns[job.index]
            self._left[turn] -= 1
            if turn == self._turn and not self._left[turn]:
                self._clock.after(scaled(self._speed, self._options.pause_ns), self._next_round)

    def _next_round(self) -> None:
        self._turn += 1
        jobs, self._waiting = self._waiting, []
        for job in jobs:
            self.ready(job)

    @property
    def _full(self) -> bool:
        return 0 < self._options.max_parallel <= self._in_progress

    def _catch_up(self) -> None:
        """The looks since the last change found nothing to send: they only moved the next one."""
        late_ns = self._clock.now_ns - self._look_ns
        if late_ns <= 0 or not self._options.gap_ns:
            return
        if self._full:
            again_ns = max(1, scaled(self._speed, _LOOK_AGAIN_NS))
            self._look_ns += -(-late_ns // again_ns) * again_ns
        elif self._options.distribution == "poisson":  # has no memory of the pauses before
            self._look_ns = self._clock.now_ns + self._gap()
        else:
            latest_ns = _PAUSES_BACK * scaled(self._speed, self._options.gap_ns)
            self._look_ns = max(self._look_ns, self._clock.now_ns - latest_ns)
            while self._look_ns < self._clock.now_ns:
                self._look_ns += self._gap()

    def _go_on(self) -> None:
        """Has the clock look when something may be sent: without pauses, after all that becomes
        ready at this instant."""
        if not self._options.gap_ns:
            self._look_ns = self._clock.now_ns
        if self._ready and not self._full and self._expected_ns != self._look_ns:
            self._expected_ns = look_ns = self._look_ns
            self._clock.after(look_ns - self._clock.now_ns, lambda: self._look(look_ns))

    def _look(self, look_ns: int) -> None:
        if look_ns != self._expected_ns:
            return
        self._expected_ns = -1
        if look_ns != self._look_ns or not self._ready or self._full:
            return
        self._send_next()
        if self._options.gap_ns:
            self._look_ns += self._gap()
        self._go_on()

    def _send_next(self) -> None:
        ready = self._ready
        at = self._drawn(len(ready), "next") if self._options.policy == "random" else 0
        self._in_progress += 1
        self._send(ready.pop(at))

    def _drawn(self, bound: int, what: str) -> int:
        self._draws += 1
        return draw(bound, "sender", self._options.seed, what, self._draws)

    def _gap(self) -> int:
        """The next pause, in whole microseconds, so that it is the same on every machine."""
        mean_us = self._options.gap_ns / _NS_PER_US
        part = (self._drawn(_DRAWN, "pause") + 1) / _DRAWN  # above 0, at most 1
        pause_us = mean_us * (-log(part) if self._options.distribution == "poisson" else 2 * part)
        return max(1, scaled(self._speed, max(1, round(pause_us)) * _NS_PER_US))


def _turns_of(jobs: Sequence[Job]) -> array[int]:
    """How many requests each one waits for in a chain, by its index."""
    turns = array("i")
    for job in jobs:
        turns.extend([0] * (job.index + 1 - len(turns)))
        turns[job.index] = turns[job.after] + 1 if job.after >= 0 else 0
    return turns


def scaled(speed: Fraction, time_ns: int) -> int:
    """A time of the trace in the time of the run."""
    return time_ns * speed.denominator // speed.numerator
