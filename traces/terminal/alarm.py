"""A time limit on the wall for whatever runs in a process's main thread.

Lives here: the signal, and the exception that it raises. Must not live here: how long anything may
take, or what its end means.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarm(seconds: float, error: BaseException) -> Iterator[None]:
    """Raises `error` into a block that takes longer. Only a main thread can be told by a signal:
    in any other there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
