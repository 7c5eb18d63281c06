"""What a replay leaves behind, in either mode: the record that report and results are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hicache.core.types import Pages

from .account import Account, Share
from .lookups import Lookups
from .turns import Turn

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
    timed mode SHA-256 comparisons of pages, and accesses that the hazard detector ordered.
    unjudged: what no check could judge, in words."""

    level: str
    operations: int = 0
    incremental: int = 0
    full: int = 0
    violations: int = 0
    byte_checks: int = 0
    access_checks: int = 0
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class ComponentUse:
    """What one component's pools did, in pages or states; pairs are (device, host).

    most: in use on the device at once. along: evicted there with another pool's victim, though this
    pool had as much free. cached, garbage: at the end; garbage is cached, but no boundary that a
    request could reuse requires it. None where the run did not come to its end.
    """

    name: str
    page_bytes: int
    capacity: tuple[int, int]
    loaded: int
    backed_up: int
    evicted: tuple[int, int]
    most: int
    along: int
    cached: tuple[int, int] | None
    garbage: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Run:
    """refused: admissions, chunks and growths refused, by reason. turns: of conversations.

    components, lookups: per component; see their own records.
    preempted: requests sent back to wait. interrupted: stopped by Ctrl-C; all else is then of the
    part that ran. compared: another order of eviction, and its hits (whole trace, last half).
    """

    account: Account
    transfers: dict[str, Transfer]
    lookups: Lookups
    refused: dict[str, int]
    checks: Checks
    digest: str
    components: tuple[ComponentUse, ...] = ()
    turns: Sequence[Turn] = ()
    wall_s: float = 0.0
    latency: Latency | None = None
    preempted: int = 0
    interrupted: bool = False
    compared: tuple[str, Share, Share] | None = None

    @property
    def evicted(self) -> tuple[int, int]:
        """Pages of the backbone, by tier (device, host)."""
        return self.components[0].evicted


def spread(times_ns: Pages) -> Spread:
    """Mean and percentiles in seconds; zeros for no observation."""
    if not len(times_ns):
        return Spread(0.0, 0.0, 0.0, 0.0)
    points = np.percentile(times_ns, (50, 90, 99), method="inverted_cdf")
    return Spread(float(times_ns.mean()) / NS_PER_S, *(float(point) / NS_PER_S for point in points))
