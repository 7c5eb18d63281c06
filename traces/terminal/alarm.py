"""A wall-clock time limit for a block of code in the main thread.

Does not choose the limit or decide what a timeout means; the callers do.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarm(seconds: float, error: BaseException) -> Iterator[None]:
    """Raises `error` in the block when the block takes longer than `seconds`.

    Only the main thread can receive the signal. In any other thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise error

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
