"""The options of a replay for storage; see replaying/storage for what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from hicache import registry

from ...terminal.options import (
    OptionRecord,
    at_least,
    byte_size,
    entry,
    name,
)
from ...terminal.rows import option
from ..defaults import LIMITS_NS, PREFETCH, PREFETCH_THRESHOLD_TOKENS
from .needs import Need

_WAITS = [f"{base / 1e9:g}s for {policy}" for policy, (base, _) in LIMITS_NS.items()]


@dataclass(frozen=True)
class StorageOptions(OptionRecord):
    """storage_bandwidth: bytes per second of reads and of writes. storage_latency: nanoseconds.
    prefetch_limit: nanoseconds, in all and for each token."""

    HEADING = "storage, the tier behind host memory"

    storage: str | None = option(
        "sim:read=6GB/s,write=3GB/s,latency=200us for a store in virtual time; file:DIR, "
        "redis://HOST:PORT, mooncake://HOST:PORT or s3://BUCKET?endpoint=URL for a real one, which "
        "keeps small values that stand for pages (docs/storage_replay.md)",
        name,
        "ADDRESS",
        common=True,
        commas=True,
        needs=(Need.HOST,),
        tried="sim:read=1GB/s",
    )
    storage_size: int | None = option(
        "most bytes of pages in storage, such as 20G; the least recently used go first (default: "
        "no limit)",
        at_least(1, byte_size),
        "B",
        needs=(Need.STORE,),
    )
    prefetch: str | None = option(
        lambda: (
            "whether a request waits for its prefetch: "
            f"{', '.join(registry.spellings(registry.PREFETCH_POLICIES))} (default: {PREFETCH})"
        ),
        entry(registry.PREFETCH_POLICIES),
        "POLICY",
        needs=(Need.STORE,),
        tried="timeout",
    )
    prefetch_threshold: int | None = option(
        f"do not fetch fewer tokens than this (default: {PREFETCH_THRESHOLD_TOKENS})",
        at_least(0),
        "TOKENS",
        needs=(Need.STORE,),
    )
    flush_host_every_round: bool | None = option(
        "empty the host between the rounds of conversations; a round begins when the one before "
        "has ended",
        needs=(Need.HOST, Need.ROUNDS, Need.ALONE),
    )
    flush_device_every_round: bool | None = option(
        "empty the device between the rounds of conversations; a round begins when the one before "
        "has ended",
        needs=(Need.ROUNDS, Need.ALONE),
    )
