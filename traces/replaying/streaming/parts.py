"""What a replay of a trace that is read once cost: processor time and memory, by part.

It is told of every request that ended.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage

REQUESTS = 100_000  # of a part


class Parts:
    """cpu_s: of each whole part. peak_bytes: the largest resident memory up to its end."""

    def __init__(self, requests: int = REQUESTS) -> None:
        self.requests = requests
        self.cpu_s: list[float] = []
        self.peak_bytes: list[int] = []
        self._ended = 0
        self._since = time.process_time()

    def ended(self) -> None:
        self._ended += 1
        if self._ended % self.requests:
            return
        now = time.process_time()
        self.cpu_s.append(round(now - self._since, 3))
        self.peak_bytes.append(peak_bytes())
        self._since = now


@dataclass(slots=True)
class Offered:
    """What says how much load a trace offered. Times in nanoseconds, summed, and of the run.
    waiting: requests that waited ten times as long as their passes took. running_ns: from when they
    left the queue until they ended."""

    requests: int = 0
    ttft_ns: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    first_arrival_ns: int = 0
    last_arrival_ns: int = 0
    last_first_token_ns: int = 0
    waiting: int = 0
    running_ns: int = 0


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024
