"""The end of worker processes: they ignore signals, and exit when their parent is gone.

Does not handle the signals of the command itself; see traces/terminal/signals.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import parent_process

from .signals import ENDS

_POLL_S = 0.5


def ignore_signals() -> None:
    """Call in a worker: ignores the signals, since the parent ends its workers.

    The worker also exits if the parent is gone, for example killed.
    """
    for end in ENDS:
        signal.signal(end, signal.SIG_IGN)
    exit_with_parent()


def exit_with_parent() -> None:
    """Call in a worker: exits the process when the parent is gone."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.pid,), daemon=True).start()


def _exit_after(parent: int | None) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
