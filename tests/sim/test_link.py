"""The wire against a reference that moves bytes in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.devices.base import Direction
from sim.clock import Clock
from sim.device.link import SECOND_NS, Link
from tests.sim.clocks import run

D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
_SENDS = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from([D2H, H2D]), st.integers(0, 5000)), max_size=8
)


def _simulated(
    sends: list[tuple[int, Direction, int]], single: int, shared: int, latency: int, parts: int
) -> tuple[dict[int, int], Link]:
    clock = Clock()
    link = Link(clock, single, shared, latency)
    ends: dict[int, int] = {}

    def finish(number: int) -> None:
        ends[number] = clock.now_ns

    for number, (at, way, count) in enumerate(sends):
        steps = [lambda: None] * (parts - 1) + [lambda number=number: finish(number)]
        clock.after(at, lambda way=way, count=count, steps=steps: link.send(way, count, steps))
    run(clock)
    return ends, link


def _reference(
    sends: list[tuple[int, Direction, int]], single: int, shared: int, latency: int
) -> dict[int, int]:
    """A nanosecond at a time: latency first, then bytes at the rate of the moment."""
    queues: dict[Direction, list[int]] = {D2H: [], H2D: []}
    late = dict.fromkeys(queues, 0)
    left = {way: Fraction(0) for way in queues}
    open_: dict[Direction, int | None] = {D2H: None, H2D: None}
    ends: dict[int, int] = {}
    now = 0
    while len(ends) < len(sends):
        for number, (at, way, _) in enumerate(sends):
            if at == now:
                queues[way].append(number)
        for _ in range(len(sends) + 1):
            for way, queue in queues.items():
                if open_[way] is None and queue:
                    open_[way] = queue.pop(0)
                    late[way] = latency
                    left[way] = Fraction(sends[open_[way]][2])  # type: ignore[index]
                current = open_[way]
                if current is not None and late[way] == 0 and left[way] <= 0:
                    ends[current] = now
                    open_[way] = None
        moving = [way for way in queues if open_[way] is not None and late[way] == 0]
        rate = single if len(moving) < 2 else min(single, shared // 2)
        for way in queues:
            if way in moving:
                left[way] -= Fraction(rate, SECOND_NS)
            elif open_[way] is not None:
                late[way] -= 1
        now += 1
    return ends


@settings(max_examples=60, deadline=None)
@given(
    _SENDS,
    st.integers(1, 4).map(lambda n: n * 10**9),
    st.integers(1, 8).map(lambda n: n * 10**9),
    st.integers(0, 300),
    st.integers(1, 4),
)
def test_transfers_end_when_the_reference_says(
    sends: list[tuple[int, Direction, int]], single: int, shared: int, latency: int, parts: int
) -> None:
    ends, link = _simulated(sends, single, shared, latency, parts)
    assert ends == _reference(sends, single, shared, latency)
    for way in Direction:
        assert link.bytes_moved(way) == sum(count for _, to, count in sends if to == way)


def test_two_directions_share_the_link() -> None:
    alone, _ = _simulated([(0, D2H, 10_000)], 10**9, 10**9, 100, 1)
    both, link = _simulated([(0, D2H, 10_000), (0, H2D, 10_000)], 10**9, 10**9, 100, 1)
    free, _ = _simulated([(0, D2H, 10_000), (0, H2D, 10_000)], 10**9, 2 * 10**9, 100, 1)
    assert alone == {0: 10_100}
    assert both == {0: 20_100, 1: 20_100}
    assert free == {0: 10_100, 1: 10_100}
    assert link.busy_ns(D2H) == link.busy_ns(H2D) == 20_100


def test_one_direction_takes_turns_in_order() -> None:
    ends, _ = _simulated([(0, D2H, 3000), (0, D2H, 1), (5, D2H, 1000)], 10**9, 10**9, 10, 1)
    assert ends == {0: 3010, 1: 3021, 2: 4031}


@given(st.integers(1, 10**6), st.integers(1, 10**12), st.integers(1, 7))
def test_the_end_time_is_rounded_up_once(count: int, rate: int, parts: int) -> None:
    ends, _ = _simulated([(0, D2H, count)], rate, rate, 0, parts)
    assert ends == {0: ceil(Fraction(count * SECOND_NS, rate))}
