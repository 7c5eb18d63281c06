"""A limit of processor time for a block of code in the main thread.

Does not choose the limit or decide what a timeout means; the callers do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASLEEP = 30  # a block that computes nothing is given this many times its limit, by the clock


@contextmanager
def alarm(seconds: float, error: BaseException) -> Iterator[None]:
    """Raises `error` in the block when the process has computed for longer than `seconds` in it. So
    a busy machine changes nothing.

    Only the main thread can receive the signals. In any other thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise error

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, ASLEEP * seconds),
    )
    previous = [signal.signal(number, on_alarm) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, previous, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
