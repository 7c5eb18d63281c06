"""Lowers limits of the core that a short sequence would never reach.

Such a limit may change when work is done, but never a decision. Does not contain settings (see
`Config`) or anything that a tape must record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hicache.core.radix import lru

SWEPT = 2


@contextmanager
def often_swept() -> Iterator[None]:
    """Sweeps stale entries out of eviction queues at small sizes, too."""
    before = lru.LEAST_SWEPT
    lru.LEAST_SWEPT = SWEPT
    try:
        yield
    finally:
        lru.LEAST_SWEPT = before
