"""Virtual time: integers, and one order within an instant that a drawn tie can change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.clock import Clock
from sim.errors import SimError
from sim.keyed_draw import draw


def _order(clock: Clock, delays: list[int]) -> list[int]:
    seen: list[int] = []
    for number, delay in enumerate(delays):
        clock.after(delay, lambda number=number: seen.append(number))  # type: ignore[misc]
    while clock.next_ns() >= 0:
        clock.step()
    return seen


@given(st.lists(st.integers(0, 5)))
def test_events_run_by_time_then_in_order_of_scheduling(delays: list[int]) -> None:
    expected = [number for _, number in sorted((d, n) for n, d in enumerate(delays))]
    assert _order(Clock(), delays) == expected


def test_a_tie_reorders_one_instant_and_nothing_else() -> None:
    delays = [1, 0, 1, 0, 1]
    assert _order(Clock(tie=lambda number: -number), delays) == [3, 1, 4, 2, 0]


@pytest.mark.parametrize("delay", [1.0, -1, 0.5])
def test_time_is_whole_nanoseconds_and_never_runs_back(delay: int) -> None:
    with pytest.raises(SimError, match="whole nanoseconds"):
        Clock().after(delay, lambda: None)


def test_draws_depend_on_their_parts_alone() -> None:
    assert draw(10**9, 1, "a", 2) == draw(10**9, 1, "a", 2)
    several = {draw(10**9, *parts) for parts in ((1, "a"), ("1", "a"), (1, "a", ""), ("1a",))}
    assert len(several) == 4
    counts = [sum(draw(4, "even", n) == value for n in range(4000)) for value in range(4)]
    assert all(900 < count < 1100 for count in counts)
