"""Who asks a command to end.

Ctrl-C, SIGTERM (what a CI sends when a job is cancelled or out of time) and SIGHUP mean the same:
what was found is said and kept. Must not live here: what that is (each command), or what workers do
then (traces/terminal/workers).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the exit code
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 1.0  # the same word may come twice: to a process, and to its group


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt into the block; one that comes later than the grace
    ends the process at once. What is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: list[float] = []

    def ring(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > GRACE_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {one: signal.getsignal(one) for one in ENDS}
    for one in ENDS:
        if before[one] is not signal.SIG_IGN:
            signal.signal(one, ring)
    try:
        yield
    finally:
        if not first:  # else they go on to mean the end, while the process takes leave
            for one in ENDS:
                signal.signal(one, before[one])
