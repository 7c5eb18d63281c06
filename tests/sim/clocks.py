"""Running a simulated clock in tests."""

from collections.abc import Callable

from sim.clock import Clock


def run(clock: Clock, wanted: Callable[[], bool] = lambda: True) -> None:
    """Process events until none is left or `wanted` returns False."""
    while clock.next_ns() >= 0 and wanted():
        clock.step()
