"""What the worker processes of a command do when they are asked to end, or when nobody waits for
their results.

Must not live here: what the command itself does then (traces/terminal/signals).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import parent_process

from .signals import ENDS

_LOOK_EVERY_S = 0.5


def leave_signals_to_the_parent() -> None:
    """Of a worker, which may be in the middle of something: the parent tells it to end, and where
    the parent is gone, killed perhaps, it goes too."""
    for one in ENDS:
        signal.signal(one, signal.SIG_IGN)
    leave_with_the_parent()


def leave_with_the_parent() -> None:
    """Of a worker: nobody waits for its result any more."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.pid,), daemon=True).start()


def _watch(parent: int | None) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)
