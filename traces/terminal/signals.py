"""Handles the signals that end a command, and those of a limit of processor time.

Ctrl-C, SIGTERM (a CI job that is cancelled or out of time) and SIGHUP have the same effect: the
command reports and saves its results so far. Does not report or save them; each command does. Does
not stop worker processes; see traces/terminal/workers.
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
GRACE_S = 1.0  # one Ctrl-C can arrive twice: for the process, and for its group
ASLEEP = 30  # a block that computes nothing is given this many times its limit, by the clock


class _Deferral:
    """How many blocks of `deferred` the command is in, and a signal that came meanwhile."""

    depth = 0
    signal: int | None = None


@contextmanager
def deferred() -> Iterator[None]:
    """A signal that comes in the block takes effect when the block ends.

    Blocking signals in the caller's thread is not enough: the system then gives them to another
    thread of the process, and Python still runs the handler in the caller's."""
    _Deferral.depth += 1
    try:
        yield
    finally:
        _Deferral.depth -= 1
        if not _Deferral.depth and _Deferral.signal is not None:
            number, _Deferral.signal = _Deferral.signal, None
            signal.raise_signal(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt in the block.

    A later one, after the grace period, kills the process at once. Signals that are ignored (nohup)
    stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: list[float] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if _Deferral.depth and not first:
            _Deferral.signal = number
            return
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > GRACE_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    previous = {end: signal.getsignal(end) for end in ENDS}
    for end in ENDS:
        if previous[end] is not signal.SIG_IGN:
            signal.signal(end, on_signal)
    try:
        yield
    finally:
        if not first:  # otherwise a second signal still kills the process while it exits
            for end in ENDS:
                signal.signal(end, previous[end])


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
