"""A simulated device that follows plans instead of random draws.

Lives here: the plan of the next work on a stream, and the device that keeps to it. Does not choose
plans (see hand).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hicache.core.types import Tier
from hicache.devices.base import CopyJob, Mark, Stream
from sim.clock import Clock
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions


class Plan(NamedTuple):
    """The plan for the next work that is issued on a stream.

    stall: delay before it starts. pause: delay of each chunk of a copy, besides the time on the
    link. lag: time until the host sees its end. parts: chunks of each copy. failing: the copy that
    fails, -1 for none.
    """

    stall: int = 0
    pause: int = 0
    lag: int = 0
    parts: int = 1
    failing: int = -1


PLAIN = Plan()


class PlannedDevice(SimDevice):
    """A device that follows plans instead of random draws.

    moving: by target tier of a running copy, the number of arrived chunks. late: how often the host
    asked for a mark that was reached but not visible yet.
    """

    def __init__(self, clock: Clock, link: Link, sizes: dict[str, tuple[int, ...]], memory: Memory):
        options = SimDeviceOptions(sizes, faults=lambda copy, _: copy in self._lost, scribble=False)
        super().__init__(clock, link, options, memory)
        self.moving: dict[Tier, int] = {}
        self.late = 0
        self._plans: dict[Stream, Plan] = {}
        self._sent: dict[Stream, int] = {}
        self._lags: dict[int, int] = {}
        self._cut: dict[int, tuple[int, int]] = {}  # by copy: (parts, pause)
        self._pause: dict[str, int] = {}  # by stream: pause of the running copy
        self._lost: dict[int, None] = {}

    def plan(self, stream: Stream, plan: Plan) -> None:
        """Sets the plan of a stream from now on."""
        self._plans[stream], self._sent[stream] = plan, 0

    def sent(self, stream: Stream) -> int:
        """Number of copies issued under the present plan."""
        return self._sent.get(stream, 0)

    def record(self, stream: Stream) -> Mark:
        self._lags[self._marks.following] = self._plans.get(stream, PLAIN).lag
        return super().record(stream)

    def query(self, mark: Mark) -> bool:
        seen = super().query(mark)
        self.late += not seen and self._marks.is_reached(mark)
        return seen

    def copy(self, stream: Stream, job: CopyJob) -> None:
        plan, turn = self._plans.get(stream, PLAIN), self.sent(stream)
        if turn == 0 and plan.stall:
            self.compute(stream, plan.stall)
        if turn == plan.failing:
            self._lost[self._copies] = None
        self._cut[self._copies] = plan.parts, plan.pause
        self._sent[stream] = turn + 1
        super().copy(stream, job)

    def _lag_ns(self, line: object, mark: int) -> int:
        return self._lags[mark]

    def _parts(self, number: int) -> int:
        return self._cut[number][0]

    def _send(self, line: Any, copy: Any, number: int, size: int) -> None:
        self._pause[line.name] = self._cut[number][1]
        super()._send(line, copy, number, size)

    def _chunk(self, line: Any, copy: Any, bounds: list[int], part: int) -> None:
        arrive = super()._chunk
        delay = (part + 1) * self._pause[line.name]
        if delay:
            self._clock.after(delay, lambda: arrive(line, copy, bounds, part))
        else:
            arrive(line, copy, bounds, part)

    def _read(self, copy: Any, bounds: list[int], part: int) -> None:
        self.moving[copy.far[0]] = part
        super()._read(copy, bounds, part)

    def _store(self, copy: Any, bounds: list[int], part: int) -> None:
        super()._store(copy, bounds, part)
        if part + 2 == len(bounds):
            del self.moving[copy.far[0]]

    def check_at_rest(self) -> None:
        """Compares the bytes of a real device, where there is one. Nothing may be under way."""

    def close(self) -> None:
        """Ends a real device, where there is one."""
