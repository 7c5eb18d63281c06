"""Judges of time itself: the clock, random draws, the link, and the streams of the device.

Each is computed again in the plainest way: the link a nanosecond at a time, streams by waiting for
what is in front. Does not judge bytes (see test_bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

import numpy as np

from hicache.core.types import Tier
from hicache.devices.base import Area, CopyJob, Direction, Mark, Stream, Touch
from sim.clock import Clock
from sim.device.link import SECOND_NS, Link
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.errors import SimError
from sim.hardware.curve import Curve
from sim.keyed_draw import draw

from .found_out import refused

D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
_CURVE = Curve(((100, 400), (700, 900), (1400, 2000)))


class Send(NamedTuple):
    """One transfer: when it is queued, which way, bytes, and into how many steps it is divided."""

    at: int
    way: Direction
    size: int
    parts: int


def run(clock: Clock) -> None:
    while clock.next_ns() >= 0:
        clock.step()


def test_clock_orders_events() -> None:
    clock, seen = Clock(), list[tuple[int, int]]()
    delays = [5, 0, 3, 5, 0, 7, 3]
    for number, delay in enumerate(delays):
        clock.after(delay, lambda number=number: seen.append((clock.now_ns, number)))  # type: ignore[misc]
    assert clock.next_ns() == 0
    clock.after(4, lambda: clock.after(0, lambda: seen.append((clock.now_ns, 99))))
    run(clock)
    expected = sorted((delay, number) for number, delay in enumerate(delays))
    assert seen == sorted([*expected, (4, 99)]), seen
    assert clock.scheduled == len(delays) + 2
    assert clock.next_ns() == -1
    tied, order = Clock(tie=lambda number: -number), list[int]()
    for number in range(4):
        tied.after(1, lambda number=number: order.append(number))  # type: ignore[misc]
    run(tied)
    assert order == [3, 2, 1, 0]
    for wrong in (-1, 1.0, True):
        try:
            Clock().after(wrong, lambda: None)  # type: ignore[arg-type]
        except SimError:
            continue
        raise AssertionError(f"a delay of {wrong!r} was taken")


def test_draws_are_keyed() -> None:
    for bound, *parts in ((7, 1, "a"), (1000, "1"), (1 << 60, 1), (1 << 60, "1"), (3, 0, -5)):
        text = "\x1f".join(f"{'i' if isinstance(part, int) else 's'}{part}" for part in parts)
        digest = blake2b(text.encode(), digest_size=8).digest()
        assert draw(bound, *parts) == int.from_bytes(digest, "little") % bound


def _sends(seed: int) -> list[Send]:
    sends = [
        Send(
            draw(3, seed, at, "late") and draw(1000, seed, at, "at"),
            (D2H, H2D)[draw(2, seed, at, "way")],
            draw(5, seed, at, "empty") and draw(1500, seed, at, "bytes"),
            1 + draw(4, seed, at, "parts"),
        )
        for at in range(1 + draw(7, seed, "sends"))
    ]
    return sorted(sends, key=lambda one: one.at)


def test_link_moves_bytes() -> None:
    for seed in range(16):
        single = (1 + draw(3, seed, "single")) * 10**9 + draw(9, seed, "odd")
        shared = (single // 5, single // 2, single + 7, 2 * single, 3 * single)[
            draw(5, seed, "shared")
        ]
        latency = draw(3, seed, "latency") and draw(300, seed, "ns")
        curves: dict[str, Curve] = {}
        if not draw(3, seed, "curves"):
            curves = {(D2H, H2D)[draw(2, seed, "curve")].value: _CURVE}
        sends = _sends(seed)
        found, busy, link = _simulated(sends, single, shared, latency, curves)
        expected, used = _plain(sends, single, shared, latency, curves)
        assert found == expected, f"link {seed}: expected {expected}, found {found}"
        assert busy == used, f"link {seed}: busy for {busy}, expected {used}"
        for way in Direction:
            assert link.bytes_moved(way) == sum(one.size for one in sends if one.way is way)
            if not curves:  # the time that the bytes alone take, and no less
                assert link.busy_ns(way) * single >= link.bytes_moved(way) * SECOND_NS
    quick = Curve(((10, 10), (20, 20)))  # measured below the latency: the bytes take no time
    assert _simulated([Send(0, D2H, 5, 2)], 10**12, 10**12, 300, {"d2h": quick})[0] == {
        0: [300, 300]
    }
    both = [Send(0, D2H, 3, 1), Send(0, H2D, 2, 1)]  # no direction stands still for the other
    assert _simulated(both, 1, 1, 0, {})[0] == {0: [3 * SECOND_NS], 1: [2 * SECOND_NS]}


Steps = dict[int, list[int]]


def _simulated(
    sends: list[Send], single: int, shared: int, latency: int, curves: Mapping[str, Curve]
) -> tuple[Steps, dict[Direction, int], Link]:
    clock = Clock()
    link = Link(clock, single, shared, latency, curves)
    steps: Steps = {number: [] for number in range(len(sends))}
    for number, one in enumerate(sends):
        calls = [lambda number=number: steps[number].append(clock.now_ns)] * one.parts
        clock.after(one.at, lambda one=one, calls=calls: link.send(one.way, one.size, calls))  # type: ignore[misc]
    run(clock)
    return steps, {way: link.busy_ns(way) for way in Direction}, link


def _plain(
    sends: list[Send], single: int, shared: int, latency: int, curves: Mapping[str, Curve]
) -> tuple[Steps, dict[Direction, int]]:
    """A nanosecond at a time: latency first, then bytes at the rate of the moment."""
    steps: Steps = {number: [] for number in range(len(sends))}
    queues: dict[Direction, list[int]] = {way: [] for way in Direction}
    current: dict[Direction, int] = {}
    late, left, busy = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0), dict.fromkeys(queues, 0)
    work, now, done = list[int](), 0, 0
    for one in sends:
        curve = curves.get(one.way.value)
        as_if = one.size
        if curve is not None and one.size:
            as_if = max(0, curve.ns(one.size) - latency) * single // SECOND_NS
        work.append(as_if * SECOND_NS)
    while done < len(sends):
        for number, one in enumerate(sends):
            if one.at == now:
                queues[one.way].append(number)
        for way in [*queues] * (len(sends) + 1):
            if way not in current and queues[way]:
                current[way] = queues[way].pop(0)
                late[way], left[way] = latency, work[current[way]]
            number = current.get(way, -1)
            if number < 0 or late[way]:
                continue
            parts = sends[number].parts
            while len(steps[number]) < parts:
                to_come = work[number] * (parts - 1 - len(steps[number])) // parts
                if left[way] > to_come:
                    break
                steps[number].append(now)
            if len(steps[number]) == parts:
                del current[way]
                done += 1
        moving = [way for way in current if not late[way]]
        rate = single if len(moving) < 2 else max(1, min(single, shared // 2))
        for way in current:
            busy[way] += 1
            if late[way]:
                late[way] -= 1
            else:
                left[way] -= rate
        now += 1
    return steps, busy


# -- streams

_BYTES = (1000, 500)
_LATENCY = 100
_RATE = 10**9
_NAMES = ("compute", "write", "load")


def test_streams_keep_their_order() -> None:
    """Marks are reached when all that is in front has ended, and the host sees them late."""
    for seed in range(30):
        lag = (0, 700)[draw(2, seed, "lag")]
        period = draw(3, seed, "faults")
        clock = Clock()
        link = Link(clock, _RATE, 2 * _RATE, _LATENCY)
        options = SimDeviceOptions(
            {"full": _BYTES},
            seed,
            lag,
            faults=lambda number, way, period=period: bool(period) and number % 3 == period,  # type: ignore[misc]
        )
        device = SimDevice(clock, link, options)
        assert device.layers == len(_BYTES)
        plain = _Plain(lag, seed, period)
        seen: list[tuple[int, Mark]] = []
        wakes: list[int] = []
        device.listener = lambda wakes=wakes, clock=clock: wakes.append(clock.now_ns)  # type: ignore[misc]
        for turn in range(4):
            for number in range(1 + draw(7, seed, turn, "work")):
                _issue(device, plain, (seed, turn, number), seen, clock)
            while clock.next_ns() >= 0:
                clock.step()
                for mark, one in enumerate(plain.marks):
                    visible = one.at + one.lag <= clock.now_ns
                    assert device.query(Mark(mark)) <= visible, f"mark {mark} of {seed} is early"
            plain.now = clock.now_ns
        for mark, expected in enumerate(plain.marks):
            found = device.reached_ns(Mark(mark))
            assert found == expected.at, f"mark {mark} of {seed}: {found}, expected {expected.at}"
            assert device.failed(Mark(mark)) == expected.failed, f"mark {mark} of {seed}: failure"
            assert device.query(Mark(mark)) == (expected.at + expected.lag <= clock.now_ns)
        assert wakes == sorted(one.at + one.lag for one in plain.marks if not one.synced)
        assert sorted(seen) == sorted(
            (one.at, Mark(at)) for at, one in enumerate(plain.marks) if one.synced
        )
        for way in Direction:
            assert link.bytes_moved(way) == plain.bytes[way]
            assert link.busy_ns(way) == plain.busy[way]
    _before_and_after()


class _Reached(NamedTuple):
    at: int
    lag: int
    failed: bool
    synced: bool


class _Plain:
    """Streams as the times at which each is free. Copies of one direction use one stream."""

    def __init__(self, lag_ns: int, seed: int, period: int) -> None:
        self.free = dict.fromkeys(_NAMES, 0)
        self.seen = dict.fromkeys(_NAMES, 0)
        self.broken = dict.fromkeys(_NAMES, False)
        self.marks: list[_Reached] = []
        self.bytes = dict.fromkeys(Direction, 0)
        self.busy = dict.fromkeys(Direction, 0)
        self.copies = self.now = 0
        self._lag_ns, self._seed, self._period = lag_ns, seed, period

    def begin(self, name: str) -> int:
        return max(self.now, self.free[name])

    def record(self, name: str, synced: bool) -> None:
        lag = 0
        if not synced:
            self.seen[name] += 1
            lag = draw(self._lag_ns + 1, self._seed, "lag", name, self.seen[name])
        self.free[name] = self.begin(name)
        self.marks.append(_Reached(self.free[name], lag, self.broken[name], synced))
        self.broken[name] = False

    def copy(self, name: str, way: Direction, count: int) -> None:
        fails = self._period > 0 and self.copies % 3 == self._period
        self.copies += 1
        if fails:
            self.broken[name] = True
            count = 0
        elif not count:
            return
        took = _LATENCY + ceil(count * SECOND_NS / _RATE)
        self.free[name] = self.begin(name) + took
        self.bytes[way] += count
        self.busy[way] += took


def _issue(
    device: SimDevice,
    plain: _Plain,
    key: tuple[int, int, int],
    seen: list[tuple[int, Mark]],
    clock: Clock,
) -> None:
    """One piece of work on both."""
    name = _NAMES[draw(3, *key, "stream")]
    stream = device.stream(name)
    assert device.stream(name) == stream
    kind = draw(5, *key, "kind")
    if kind == 0:
        duration = draw(900, *key, "ns")
        device.compute(stream, duration)
        plain.free[name] = plain.begin(name) + duration
    elif kind == 1 and plain.marks:
        mark = draw(len(plain.marks), *key, "mark")
        device.wait(stream, Mark(mark))
        plain.free[name] = max(plain.begin(name), plain.marks[mark].at)
    elif kind == 2 and name != "compute":
        way = D2H if name == "write" else H2D
        pages = np.arange(draw(4, *key, "pages"))
        layers = ((0, 2), (0, 1), (1, 2), (1, 1))[draw(4, *key, "layers")]
        device.copy(stream, CopyJob(way, "full", pages, pages + 1, layers, "copy"))
        if len(pages):
            size = sum(_BYTES[layers[0] : layers[1]])
            plain.copy(name, way, len(pages) * size)
    else:
        synced = kind == 3 and plain.begin(name) > plain.now  # not reached at once
        mark_ = device.record(stream)
        plain.record(name, synced)
        if synced:
            device.sync(mark_, lambda: seen.append((clock.now_ns, mark_)))


def _before_and_after() -> None:
    """What a device without bytes refuses, and what it says of a mark that was not reached."""
    clock = Clock()
    device = SimDevice(clock, Link(clock, 1, 1, 1), SimDeviceOptions({"full": _BYTES}))
    stream = device.stream("compute")
    device.compute(stream, 10)
    mark = device.record(stream)
    assert not device.query(mark)
    assert device.reached_ns(mark) < 0
    refused(lambda: device.failed(mark), "failed: expected a mark that was reached, found mark 0")
    pages, area = np.arange(2), Area(Tier.DEVICE, "full", np.arange(2), (0, 2))
    two = np.zeros(2, dtype=np.uint64)
    refused(
        lambda: device.copy(stream, CopyJob(D2H, "full", pages, pages[:1], (0, 2), "why")),
        "why: expected as many targets as sources, found 1 for 2",
    )
    keep = "expected a device that keeps bytes; turn checks on"
    refused(lambda: device.scribble(stream, area, two), f"scribble: {keep}")
    refused(lambda: device.peek(stream, area, lambda _: None), f"peek: {keep}")
    refused(lambda: device.digest(Tier.DEVICE, "full", 0), f"digest: {keep}")
    touch = Touch("full", pages, "w", (0, 2), "why")
    device.touch(Stream(0), touch)
    device.publish(Stream(0), touch, two)
    device.verify(Stream(0), touch, two)
    run(clock)
    assert clock.now_ns >= 10
    assert device.reached_ns(mark) == 10
