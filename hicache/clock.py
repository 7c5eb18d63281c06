"""Real time, and Ctrl-C. Everything else gets time from here, so a test can give another one."""

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

HOUR = timedelta(hours=1)


class Clock(NamedTuple):
    """now_s: seconds of a clock that never goes back. sleep: lets so many seconds pass."""

    now_s: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


def started_s() -> float:
    """When this process was started, in seconds since 1970, to a second; infinity if no process of
    Python has started it, or if that cannot be read."""
    stat = Path("/proc/self/stat")
    if multiprocessing.parent_process() is None or not stat.exists():
        return math.inf
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK") + 1


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
