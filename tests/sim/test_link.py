"""The link, computed again a nanosecond at a time."""

from collections.abc import Mapping
from typing import NamedTuple

from hicache.devices.base import Direction
from sim.clock import Clock
from sim.content import draw
from sim.device.link import SECOND_NS, Link
from sim.hardware import Curve

from .found_out import run

D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
_CURVE = Curve(((100, 400), (700, 900), (1400, 2000)))


class Send(NamedTuple):
    """One transfer: when it is queued, which way, bytes, and into how many steps it is divided."""

    at: int
    way: Direction
    size: int
    parts: int


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
    return sorted(sends, key=lambda item: item.at)


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
        result, busy, link = _simulated(sends, single, shared, latency, curves)
        expected, used = _plain(sends, single, shared, latency, curves)
        assert result == expected, f"link {seed}: expected {expected}, found {result}"
        assert busy == used, f"link {seed}: busy for {busy}, expected {used}"
        for way in Direction:
            assert link.bytes_moved(way) == sum(item.size for item in sends if item.way is way)
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
    for number, item in enumerate(sends):
        calls = [lambda number=number: steps[number].append(clock.now_ns)] * item.parts
        clock.after(
            item.at, lambda value=item, calls=calls: link.send(value.way, value.size, calls)
        )  # type: ignore[misc]
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
    for item in sends:
        curve = curves.get(item.way.value)
        as_if = item.size
        if curve is not None and item.size:
            as_if = max(0, curve.ns(item.size) - latency) * single // SECOND_NS
        work.append(as_if * SECOND_NS)
    while done < len(sends):
        for number, value in enumerate(sends):
            if value.at == now:
                queues[value.way].append(number)
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
