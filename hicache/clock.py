"""Real time, and Ctrl-C. Everything else gets time from here, so a test can give another one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

HOUR = timedelta(hours=1)


class Clock(NamedTuple):
    """now_s: seconds of a clock that never goes back. sleep: lets so many seconds pass."""

    now_s: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


@contextmanager
def uninterrupted() -> Iterator[None]:
    """In the `with` block, Ctrl-C is remembered; it takes effect at the end, since it must not end
    the core in the middle of an event. Only the main thread is ever interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = signal.getsignal(signal.SIGINT)
    if not callable(known):
        yield
        return
    came: list[tuple[int, object]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)
        if came:
            known(*came[0])  # type: ignore[arg-type]
