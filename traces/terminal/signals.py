"""The signals that end a command, a limit of processor time, and worker processes.

Ctrl-C, SIGTERM (a CI job that is cancelled or out of time) and SIGHUP have the same effect: the
command reports and saves its results so far. Workers ignore them, and exit when their parent is
gone.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from types import FrameType

INTERRUPTED = 130  # the exit code
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 1.0  # one Ctrl-C can arrive twice: for the process, and for its group
ASLEEP = 30  # a block that computes nothing is given this many times its limit, by the clock
MOST_HASH_SEED = 1 << 32
_POLL_S = 0.5


class _Deferral:
    """How many blocks of `deferred` the command is in, and a signal that came meanwhile."""

    depth = 0
    signal: int | None = None


@contextmanager
def deferred() -> Iterator[None]:
    """A signal that comes in the block takes effect when the block ends, whichever thread of the
    process gets it."""
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
    """The first signal raises KeyboardInterrupt in the block; a later one, after the grace period,
    kills the process at once. Signals that are ignored (nohup) stay ignored."""
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
    """Raises `error` in the block when the process has computed for longer than `seconds` in it,
    so a busy machine changes nothing. No limit but in the main thread, which alone gets signals."""
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


def ignore_signals() -> None:
    """Call in a worker: ignores the signals, since the parent ends its workers, and exits when the
    parent is gone, for example killed."""
    for end in ENDS:
        signal.signal(end, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.pid,), daemon=True).start()


def _exit_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


@contextmanager
def deferring_signals() -> Iterator[None]:
    """The command gets a signal when the block ends. Processes that start in it have the signals
    blocked until `ignore_signals`, so Ctrl-C ends no worker with a traceback while it imports."""
    resource_tracker.ensure_running()  # it would unblock the signals when it starts
    with deferred():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def environment(**settings: str) -> Iterator[None]:
    """Processes that start in the block have these variables."""
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def how_ended(processes: Sequence[BaseProcess]) -> str:
    """Says how a worker ended that was not asked to, as far as that is known."""
    ends = (None, 0, -signal.SIGTERM)
    code = next((process.exitcode for process in processes if process.exitcode not in ends), None)
    if code is None:
        return "the reason is not known"
    if code >= 0:
        return f"it ended with exit code {code}; its own message is above"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
    memory = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
    return f"it was ended by signal {-code} ({name}){memory}"


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
