"""The wire between device and host: two directions, one copy at a time each, one shared limit.

Lives here: how long bytes take when the other direction is busy or idle. Must not live here: pages,
streams, or what a copy means.

A transfer first waits `latency_ns`, then moves at `single` bytes/s while the other direction moves
nothing, else at its half of `shared` (never above `single`). Work left is kept in byte-nanoseconds
per second (bytes * 10**9), so that rate * elapsed is exact and the end, rounded up once, does not
depend on how often the rate changed or how many milestones were asked for.

Where a direction has a measured curve, a transfer's work is what makes it take, alone, as long as
the curve says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from hicache.devices.base import Direction

from ..clock import Clock
from ..hardware.curve import Curve

SECOND_NS = 1_000_000_000


class _Lane:
    """One direction. epoch: bumped whenever a planned event became stale."""

    __slots__ = (
        "began_ns",
        "busy_ns",
        "bytes",
        "current",
        "epoch",
        "left",
        "moving",
        "other",
        "since_ns",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Transfer] = deque()
        self.current: Transfer | None = None
        self.other: _Lane = self
        self.moving = False
        self.left = 0
        self.since_ns = 0
        self.began_ns = 0
        self.epoch = 0
        self.busy_ns = 0
        self.bytes = 0


class Transfer:
    """Bytes to move; `steps` callbacks fire in order after equal parts of them moved.

    work: bytes that take as long at the link's own rate.
    """

    __slots__ = ("bytes", "next", "steps", "work")

    def __init__(self, count: int, work: int, steps: list[Callable[[], None]]) -> None:
        self.bytes = count
        self.work = work
        self.steps = steps
        self.next = 0


class Link:
    """See the module. `bytes_moved` and `busy_ns` count finished transfers, latency included."""

    def __init__(
        self,
        clock: Clock,
        single: int,
        shared: int,
        latency_ns: int,
        curves: Mapping[str, Curve] | None = None,
    ) -> None:
        self._clock = clock
        self._curves = curves or {}
        self._single = single
        self._halved = max(1, min(single, shared // 2))
        self._latency_ns = latency_ns
        self._lanes = {direction: _Lane() for direction in Direction}
        ends = list(self._lanes.values())
        ends[0].other, ends[1].other = ends[1], ends[0]

    def busy_ns(self, direction: Direction) -> int:
        return self._lanes[direction].busy_ns

    def bytes_moved(self, direction: Direction) -> int:
        return self._lanes[direction].bytes

    def send(self, direction: Direction, count: int, steps: list[Callable[[], None]]) -> None:
        """Queue a transfer; the last of `steps` is called when all of it has moved."""
        lane = self._lanes[direction]
        lane.waiting.append(Transfer(count, self._work(direction, count), steps))
        if lane.current is None:
            self._begin(lane)

    def _work(self, direction: Direction, count: int) -> int:
        curve = self._curves.get(direction.value)
        if curve is None or not count:
            return count
        return max(0, curve.ns(count) - self._latency_ns) * self._single // SECOND_NS

    def _begin(self, lane: _Lane) -> None:
        lane.current = lane.waiting.popleft()
        lane.began_ns = self._clock.now_ns
        self._clock.after(self._latency_ns, lambda: self._move(lane))

    def _move(self, lane: _Lane) -> None:
        assert lane.current is not None
        self._settle(lane.other)
        lane.left = lane.current.work * SECOND_NS
        lane.since_ns = self._clock.now_ns
        lane.moving = True
        self._plan(lane)
        self._plan(lane.other)

    def _rate(self, lane: _Lane) -> int:
        return self._halved if lane.other.moving else self._single

    def _settle(self, lane: _Lane) -> None:
        """Account for what moved at the rate that held until now."""
        if lane.moving:
            now = self._clock.now_ns
            lane.left -= self._rate(lane) * (now - lane.since_ns)
            lane.since_ns = now

    def _plan(self, lane: _Lane) -> None:
        """Plan the next milestone at the rate that holds from now on."""
        transfer = lane.current
        if not lane.moving or transfer is None:
            return
        lane.epoch += 1
        epoch = lane.epoch
        parts = len(transfer.steps)
        floor = transfer.work * SECOND_NS * (parts - 1 - transfer.next) // parts
        wait_ns = max(0, -(-(lane.left - floor) // self._rate(lane)))
        self._clock.after(wait_ns, lambda: self._arrive(lane, epoch))

    def _arrive(self, lane: _Lane, epoch: int) -> None:
        transfer = lane.current
        if epoch != lane.epoch or transfer is None:
            return
        self._settle(lane)
        step = transfer.steps[transfer.next]
        transfer.next += 1
        if transfer.next < len(transfer.steps):
            self._plan(lane)
            step()
            return
        self._settle(lane.other)
        lane.moving = False
        lane.current = None
        lane.epoch += 1
        lane.busy_ns += self._clock.now_ns - lane.began_ns
        lane.bytes += transfer.bytes
        self._plan(lane.other)
        if lane.waiting:
            self._begin(lane)
        step()
