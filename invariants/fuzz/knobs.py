"""Limits of the core that a short sequence would never reach, made small while it plays.

Lives here: what changes when something is done, never what is decided. Must not live here: settings
(`Config`), or anything that a tape would have to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hicache.core.radix import lru

SWEPT = 2


@contextmanager
def often_swept() -> Iterator[None]:
    """Eviction queues are swept of stale entries all the time, not only when they are long."""
    before = lru.LEAST_SWEPT
    lru.LEAST_SWEPT = SWEPT
    try:
        yield
    finally:
        lru.LEAST_SWEPT = before
