"""Ctrl-C is put off while the core decides: it must not end in the middle of an event."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """In the `with` block, Ctrl-C is remembered; it takes effect at the end. Only the main thread
    is ever interrupted."""
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
