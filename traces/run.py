"""What a replay leaves behind, in either mode: the record that report and results are made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hicache.core.types import Pages

from .account import Account

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """One direction of the host link. busy_ns: None where there was no clock."""

    bytes: int
    busy_ns: int | None


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in seconds. Percentiles are observed values (nearest rank)."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Latency:
    """int64 nanoseconds per finished request; tpot only where there were two tokens or more."""

    ttft_ns: Pages
    tpot_ns: Pages
    makespan_ns: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class Checks:
    """How much was checked: operations seen, incremental and full checks run, violations; and in
    timed mode SHA-256 comparisons of pages, and accesses that the hazard detector ordered."""

    level: str
    operations: int = 0
    incremental: int = 0
    full: int = 0
    violations: int = 0
    byte_checks: int = 0
    access_checks: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """evicted: pages by tier (device, host). refused: admissions and growths refused, by reason.

    preempted: requests sent back to wait. interrupted: stopped by Ctrl-C; all else is then of the
    part that ran.
    """

    account: Account
    transfers: dict[str, Transfer]
    evicted: tuple[int, int]
    refused: dict[str, int]
    checks: Checks
    digest: str
    wall_s: float
    latency: Latency | None = None
    preempted: int = 0
    interrupted: bool = False


def spread(times_ns: Pages) -> Spread:
    """Mean and percentiles in seconds; zeros for no observation."""
    if not len(times_ns):
        return Spread(0.0, 0.0, 0.0, 0.0)
    points = np.percentile(times_ns, (50, 90, 99), method="inverted_cdf")
    return Spread(float(times_ns.mean()) / NS_PER_S, *(float(point) / NS_PER_S for point in points))
