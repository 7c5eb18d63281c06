"""What a replay of a trace that is read once cost: processor time and memory, by million requests.

Lives here: the measurement, which is told of every request that ended, and the record of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage

REQUESTS = 1_000_000  # of a part


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


@dataclass(frozen=True, slots=True)
class Streaming:
    """How a trace was read. remembered: whether the ceiling forgot no segment. group: the requests
    that the account of the last half cannot tell apart. parts: what each million cost."""

    remembered: bool
    group: int
    parts: Parts


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024
