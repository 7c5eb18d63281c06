"""The rules of an engine profile, a second time, for the second engine: plain lists and sums.

Lives here: when a request reaches the queue, which one of it is next, what the host adds to a pass,
and what must stay free for running requests. Does not use any module of sim/engine or
sim/schedulers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

from sim.clock import Clock
from sim.engine_profiles.base import EngineProfile
from sim.options import EngineOptions
from sim.workload import Job

_MILLION = 1_000_000


class Asked(Protocol):
    """What the rules read of a request."""

    job: Job
    length: int
    generated: int

    @property
    def outputs(self) -> int: ...
    @property
    def final(self) -> int: ...


def pass_ns(profile: EngineProfile, device_ns: int, decoding: int, chunks: int) -> int:
    """A pass of the device, and the host's part of it."""
    host_ns = profile.step_host_ns + chunks * profile.prefill_host_ns
    host_ns += (decoding + chunks) * profile.per_sequence_host_ns
    together = max(device_ns, host_ns) if profile.overlap else device_ns + host_ns
    return together + profile.step_gap_ns


class Door:
    """Requests before the queue. push: puts one in the queue. passes: how many passes have been
    composed; a request that came while a pass ran may be in the pass after the next."""

    def __init__(self, options: EngineOptions, clock: Clock, push: Callable[[Asked], None]) -> None:
        self._profile = options.profile
        self._every = options.poll_passes
        self._quiet = 0
        self._clock = clock
        self._push = push
        self._served_ns = 0
        self._passes = 0
        self.waiting: list[tuple[int, Asked]] = []

    def come(self, request: Asked, then: Callable[[], None]) -> None:
        """Calls `then` when the scheduler's process has the request."""
        profile, now_ns = self._profile, self._clock.now_ns
        tokens = request.job.input_length
        due_ns = now_ns + profile.request_host_ns + tokens * profile.request_token_host_ns
        if profile.request_serial_ns:
            self._served_ns = max(now_ns, self._served_ns) + profile.request_serial_ns
            due_ns += self._served_ns - now_ns
        if due_ns > now_ns:
            self._clock.after(due_ns - now_ns, then)
        else:
            then()

    def enter(self, request: Asked, busy: bool) -> None:
        if busy and (self._profile.lookahead or self._every > 1):
            self.waiting.append((self._passes, request))
        else:
            self._quiet = 0
            self._push(request)

    def composed(self, decoded: bool) -> None:
        """A pass is composed, after those of `_passes`: it sees what came before the last one.
        decoded: the pass before it did nothing else."""
        self._passes += 1
        self._quiet = (self._quiet + 1) if decoded else 0
        if self._quiet >= self._every:
            self._quiet = 0
        if not self._quiet:
            ahead = 1 if self._profile.lookahead else 0
            self._let_in(lambda came: came < self._passes - ahead)

    def nothing_runs(self) -> None:
        self._let_in(lambda came: True)

    def _let_in(self, may: Callable[[int], bool]) -> None:
        for came, request in list(self.waiting):
            if may(came):
                self.waiting.remove((came, request))
                self._push(request)


class Hold:
    """Prompts that wait for others, so that their pass is worth it."""

    def __init__(self, options: EngineOptions) -> None:
        self._most = options.wait_passes
        self._enough = options.wait_permille * options.token_budget // 1000
        self._passes = 0

    def keeps(self, tokens: int, decoding: int) -> bool:
        """Whether prompts of so many tokens wait for another pass."""
        if not self._most or not tokens or not decoding:
            return False
        if tokens + decoding >= self._enough or self._passes == self._most:
            self._passes = 0
            return False
        self._passes += 1
        return True


class Room:
    """What must stay free for running requests. part: of the tokens that they may still generate,
    under "estimated", in millionths."""

    def __init__(self, profile: EngineProfile, page_size: int) -> None:
        self._rule = profile.reserve
        self._size = page_size
        self._most = min(_MILLION, profile.reserve_permille * 1000)
        self.part = self._most

    @property
    def changes(self) -> bool:
        """Whether its answer may change while requests only decode."""
        return self._rule == "estimated"

    def for_one(
        self, request: Asked, admitted: Sequence[Asked], capacity: int, available: int
    ) -> bool:
        if not admitted:
            self.part = self._most
            return True
        if self._rule == "whole":
            pages = sum(-(-one.final // self._size) for one in [*admitted, request])
            return pages <= capacity
        if self._rule == "estimated":
            left = sum(min(4096, one.outputs - one.generated) for one in admitted)
            taken = self.part * left // _MILLION
            own = request.length + min(4096, request.outputs - request.generated)
            return own < available * self._size - taken
        return True

    def step(self) -> None:
        least = self._most * 14 // 100
        self.part = max(least, self.part - (self._most - least) // 600)

    def lost_one(self, admitted: Sequence[Asked]) -> None:
        made = sum(one.generated for one in admitted) + 20 * len(admitted)
        found = Fraction(made * _MILLION, sum(one.outputs for one in admitted) + 1)
        self.part = min(_MILLION, int(found))


class Waiting(Protocol):
    job: Job


Reusable = Callable[[Waiting], int]


class Line:
    """The waiting requests, in order of arrival; one that was preempted stands in front."""

    def __init__(self, order: str, window: int) -> None:
        self.order = order.replace("_", "-")
        self.window = window
        self.waiting: list[Waiting] = []

    def push(self, request: Waiting) -> None:
        self.waiting.append(request)

    def push_front(self, request: Waiting) -> None:
        self.waiting.insert(0, request)

    def best(self, reusable: Reusable) -> Waiting:
        line = self.waiting
        if self.order == "priority":
            return max(line, key=lambda one: one.job.priority)
        if self.order == "longest-prefix" and self.window > 1:
            return max(line[: self.window], key=reusable)
        return line[0]

    def remove(self, request: Waiting) -> None:
        self.waiting.remove(request)
