"""The link between device and host: two directions, one copy at a time in each, one shared limit.

A transfer first waits `latency_ns`. Then it moves at `single` bytes/s while the other direction is
idle, else at half of `shared`, but never above `single`. The remaining work is kept in
byte-nanoseconds per second (bytes * 10**9), so that rate * elapsed is exact. The end is rounded up
once and does not depend on the number of rate changes or milestones.

If a direction has a measured curve, the work of a transfer is chosen so that it takes the time of
the curve when the other direction is idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hicache.devices.base import Direction

from ..clock import Clock
from ..hardware import Curve

SECOND_NS = 1_000_000_000


@dataclass(slots=True, eq=False)
class Transfer:
    """Bytes to move. The callbacks `steps` are called in order, each after an equal part has moved;
    `next` is the first that has not been called.

    work: number of bytes that take the same time at the link's own rate.
    """

    bytes: int
    work: int
    steps: list[Callable[[], None]]
    next: int = 0


@dataclass(slots=True, eq=False)
class _Channel:
    """One direction. epoch: increased whenever a planned event becomes invalid."""

    waiting: deque[Transfer] = field(default_factory=deque)
    current: Transfer | None = None
    moving: bool = False
    left: int = 0
    since_ns: int = 0
    began_ns: int = 0
    epoch: int = 0
    busy_ns: int = 0
    bytes: int = 0
    other: _Channel = field(init=False)


class Link:
    """See the module. single, shared: bytes/s. `bytes_moved` and `busy_ns` count finished
    transfers, including latency."""

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
        self._channels = {direction: _Channel() for direction in Direction}
        ends = list(self._channels.values())
        ends[0].other, ends[1].other = ends[1], ends[0]

    def busy_ns(self, direction: Direction) -> int:
        return self._channels[direction].busy_ns

    def bytes_moved(self, direction: Direction) -> int:
        return self._channels[direction].bytes

    def send(self, direction: Direction, count: int, steps: list[Callable[[], None]]) -> None:
        """Queues a transfer. The last of `steps` is called when all bytes have moved."""
        channel = self._channels[direction]
        channel.waiting.append(Transfer(count, self._work(direction, count), steps))
        if channel.current is None:
            self._begin(channel)

    def _work(self, direction: Direction, count: int) -> int:
        curve = self._curves.get(direction.value)
        if curve is None or not count:
            return count
        return max(0, curve.ns(count) - self._latency_ns) * self._single // SECOND_NS

    def _begin(self, channel: _Channel) -> None:
        channel.current = channel.waiting.popleft()
        channel.began_ns = self._clock.now_ns
        self._clock.after(self._latency_ns, lambda: self._move(channel))

    def _move(self, channel: _Channel) -> None:
        assert channel.current is not None
        self._settle(channel.other)
        channel.left = channel.current.work * SECOND_NS
        channel.since_ns = self._clock.now_ns
        channel.moving = True
        self._plan(channel)
        self._plan(channel.other)

    def _rate(self, channel: _Channel) -> int:
        return self._halved if channel.other.moving else self._single

    def _settle(self, channel: _Channel) -> None:
        """Subtracts the bytes that have moved at the rate until now."""
        if channel.moving:
            now = self._clock.now_ns
            channel.left -= self._rate(channel) * (now - channel.since_ns)
            channel.since_ns = now

    def _plan(self, channel: _Channel) -> None:
        """Plans the next milestone at the rate from now on."""
        transfer = channel.current
        if not channel.moving or transfer is None:
            return
        channel.epoch += 1
        epoch = channel.epoch
        parts = len(transfer.steps)
        floor = transfer.work * SECOND_NS * (parts - 1 - transfer.next) // parts
        wait_ns = max(0, -(-(channel.left - floor) // self._rate(channel)))
        self._clock.after(wait_ns, lambda: self._arrive(channel, epoch))

    def _arrive(self, channel: _Channel, epoch: int) -> None:
        transfer = channel.current
        if epoch != channel.epoch or transfer is None:
            return
        self._settle(channel)
        step = transfer.steps[transfer.next]
        transfer.next += 1
        if transfer.next < len(transfer.steps):
            self._plan(channel)
            step()
            return
        self._settle(channel.other)
        channel.moving = False
        channel.current = None
        channel.epoch += 1
        channel.busy_ns += self._clock.now_ns - channel.began_ns
        channel.bytes += transfer.bytes
        self._plan(channel.other)
        if channel.waiting:
            self._begin(channel)
        step()
