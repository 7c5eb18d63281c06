"""What each replica of a replay did, and how the router divided the work. Data and shares only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hicache.core.types import Pages
from sim.fleet.handoff import Trip
from sim.fleet.options import FleetOptions

MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"


@dataclass(frozen=True, slots=True)
class ReplicaUse:
    """One replica. role: mixed, prefill or decode. requests: that it served, or its part of them.

    input_tokens, hit_tokens: of the prompts that it prefilled; 0 for a decode replica.
    output_tokens: that it sampled. ttft_ns: of the requests that it prefilled, empty without a
    clock. evicted_pages: of full attention, device and host. operations: of its core that were
    checked.
    """

    role: str
    requests: int
    input_tokens: int
    hit_tokens: int
    output_tokens: int
    ttft_ns: Pages
    evicted_pages: tuple[int, int]
    operations: int
    digest: str

    @property
    def computed_tokens(self) -> int:
        return self.input_tokens - self.hit_tokens

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass(frozen=True, slots=True)
class LinkTotals:
    """The KV link: bytes that moved, and the time in which its senders sent, summed over them."""

    bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class FleetUse:
    """choices: the replica of each request, by number. elsewhere_tokens: prompt tokens that an
    earlier request of the trace had, but none that was sent to the same replica. trips, link: None
    without decode replicas."""

    options: FleetOptions
    replicas: tuple[ReplicaUse, ...]
    choices: Mapping[int, int]
    elsewhere_tokens: int
    trips: Mapping[int, Trip] | None = None
    link: LinkTotals | None = None

    @property
    def prefilling(self) -> tuple[ReplicaUse, ...]:
        return tuple(one for one in self.replicas if one.role != DECODE)


def imbalance(amounts: Sequence[int]) -> float:
    """The largest over the mean; 1 if all are equal, or nothing was done."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0
