"""Running a simulated clock, and asserting that a wrong program ends with the right error."""

from collections.abc import Callable
from typing import TypeVar

from sim.clock import Clock
from sim.errors import SimError

E = TypeVar("E", bound=Exception)
S = TypeVar("S", bound=SimError)


def raised(work: Callable[[], object], kind: type[E]) -> E | None:
    """The error of this kind that `work` raises, or None."""
    try:
        work()
    except kind as error:
        return error
    return None


def found_out(work: Callable[[], object], kind: type[S], text: str, rule: str = "") -> S:
    """Asserts that `work` raises this error with this text in it, and returns the error."""
    error = raised(work, kind)
    assert error is not None, f"not found out: {text}"
    assert text in str(error), f"expected {text!r}, found {error}"
    assert error.rule == rule, f"expected the rule {rule!r}, found {error.rule!r}"
    return error


def run(clock: Clock, wanted: Callable[[], bool] = lambda: True) -> None:
    """Process events until none is left or `wanted` returns False."""
    while clock.next_ns() >= 0 and wanted():
        clock.step()
