"""One kind of kernel: the work of its launches, and its time; and what a pass holds, as counts.

    time = launches x fixed + ((operations / reached rate)^p + (bytes / reached bandwidth)^p)^(1/p)

Between a sum (p = 1) and the longer of both (large p). Does not say how much work a pass has (see
products, attention, exchanges) or what a kind reaches (see constants).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from hicache.core.errors import CallerError

Chunks = Sequence[tuple[int, int]]


def real(chunks: Chunks) -> list[tuple[int, int]]:
    """The chunks that have tokens."""
    return [chunk for chunk in chunks if chunk[1] > chunk[0]]


def share(total: float, largest: float, parts: int) -> float:
    """What the busiest of some parts has, if pieces go whole to one part and are spread well: the
    average, or the largest piece where that is more."""
    average = total / parts
    return largest if largest > average else average


def met(tokens: int, sequences: int, window: int) -> int:
    """The tokens of context that are read if each sequence reads at most `window` of them; 0 means
    all."""
    return min(tokens, sequences * window) if window else tokens


def twice_pairs(start: int, end: int, window: int) -> int:
    """Twice the query-key pairs of a chunk: a query at i attends to min(i + 1, window) keys."""
    pairs = (end - start) * (start + end + 1)
    full = max(start, window - 1)  # the first query that the window limits
    if window and full < end:
        pairs -= (end - full) * (full + end + 1 - 2 * window)
    return pairs


@dataclass(frozen=True, slots=True)
class Kernel:
    """Constants of one kind of kernel.

    fixed_us  of each launch, with the gap to the next kernel of a CUDA graph.
    compute   reached part of the peak rate of its operations.
    memory    reached part of the peak bandwidth of what it reads: device memory or a link.
    power     p of the formula above.
    """

    fixed_us: float = 0.0
    compute: float = 1.0
    memory: float = 1.0
    power: float = 3.0

    def __post_init__(self) -> None:
        """Raises CallerError for a value that gives no time."""
        for field in fields(self):
            value = getattr(self, field.name)
            least = {"fixed_us": 0.0, "power": 1.0}.get(field.name, 0.001)
            if not least <= value <= 10_000:
                raise CallerError(f"{field.name}: expected {least:g} to 10000, found {value!r}")

    def ns(self, launches: float, compute_ns: float, moved_ns: float) -> float:
        """Nanoseconds of some launches. compute_ns, moved_ns: of all of them, at the peaks."""
        fixed_ns = launches * self.fixed_us * 1000
        if not compute_ns:
            return fixed_ns + moved_ns / self.memory
        if not moved_ns:
            return fixed_ns + compute_ns / self.compute
        longer, shorter = compute_ns / self.compute, moved_ns / self.memory
        if longer < shorter:
            longer, shorter = shorter, longer
        power = self.power
        both: float = longer * (1 + (shorter / longer) ** power) ** (1 / power)
        return fixed_ns + both


class Work(NamedTuple):
    """The work of one kind of kernel in a pass: launches, and the nanoseconds that its operations
    and its bytes take at the peak rates. kind: its name in the constants."""

    kind: str
    launches: float
    compute_ns: float
    moved_ns: float


class PerToken(NamedTuple):
    """Work that grows with tokens: `weights_ns` of bytes once, and the others for each token."""

    kind: str
    launches: float
    compute_ns: float
    weights_ns: float
    moved_ns: float

    def of(self, tokens: int) -> Work:
        return Work(
            self.kind,
            self.launches,
            self.compute_ns * tokens,
            self.weights_ns + self.moved_ns * tokens,
        )
