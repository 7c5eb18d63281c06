"""Worker processes: how many, that they ignore signals, and exit when their parent is gone.

Does not handle the signals of the command itself; see traces/terminal/signals.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess

from .signals import ENDS, deferred

MOST_HASH_SEED = 1 << 32
_POLL_S = 0.5


def ignore_signals() -> None:
    """Call in a worker: ignores the signals, since the parent ends its workers.

    The worker also exits if the parent is gone, for example killed.
    """
    for end in ENDS:
        signal.signal(end, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    parent = parent_process()
    if parent is not None and parent.pid is not None:
        _exit_with(parent.pid)


@contextmanager
def deferring_signals() -> Iterator[None]:
    """The command gets a signal when the block ends, and does nothing by halves inside it.

    Processes that start in the block have the signals blocked until `ignore_signals`. So Ctrl-C
    does not end a worker with a traceback while it imports.
    """
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
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def how_ended(processes: Sequence[BaseProcess]) -> str:
    """Says how a worker ended that was not asked to, as far as that is known."""
    asked = (None, 0, -signal.SIGTERM)
    code = next((one.exitcode for one in processes if one.exitcode not in asked), None)
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


def _exit_with(parent: int) -> None:
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
