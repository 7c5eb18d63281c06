"""What a replay of a trace that is read once cost: processor time and memory, by part.

Lives here: the measurement, which is told of every request that ended, and the record of it.
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
    waiting: requests that waited ten times as long as their passes took."""

    requests: int = 0
    ttft_ns: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    first_arrival_ns: int = 0
    last_arrival_ns: int = 0
    last_first_token_ns: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Streaming:
    """How a trace was read. remembered: whether the ceiling forgot no segment. group: the requests
    that the account of the last half cannot tell apart. parts: what each cost. exact:
    whether every percentile is that of the times themselves. offered: the load of a timed replay.
    """

    remembered: bool
    group: int
    parts: Parts
    exact: bool = True
    offered: Offered | None = None


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024
