"""Settings of a fleet of replicas. Data only; each class explains its fields."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hicache.core.errors import CallerError

ROUTER = "round_robin"
INDEX_PAGES = 1 << 22


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """name            file in sim/fleet/routers.
    overlap_weight  how much a token to compute counts against a token that is held (prefix-aware).
    delay_ns        KV events reach the router this much later.
    index_pages     most pages that the router remembers; the least recently used go first.
    """

    name: str = ROUTER
    overlap_weight: Fraction = Fraction(1)
    delay_ns: int = 0
    index_pages: int = INDEX_PAGES


@dataclass(frozen=True, slots=True)
class KvLinkOptions:
    """The network between prefill and decode replicas. bytes_per_s: out of each prefill replica and
    into each decode replica, of all its ranks. latency_ns: before the first byte of a transfer."""

    bytes_per_s: int = 50_000_000_000
    latency_ns: int = 5_000

    def __post_init__(self) -> None:
        if self.bytes_per_s < 1:
            raise CallerError(f"KV link: expected at least 1 byte/s, found {self.bytes_per_s}")


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """replicas: those that prefill, and decode too where `decode` is 0. decode: replicas that only
    decode; then requests are prefilled on one of `replicas` and their KV moves over the link."""

    replicas: int = 1
    decode: int = 0
    router: RouterOptions = RouterOptions()
    link: KvLinkOptions = KvLinkOptions()

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.decode < 0:
            raise CallerError(
                f"fleet: expected at least 1 replica, found {self.replicas} and {self.decode}"
            )

    @property
    def members(self) -> int:
        return self.replicas + self.decode
