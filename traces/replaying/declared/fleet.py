"""The options of a replay for several replicas; see replaying/fleet for what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from hicache import registry
from sim.fleet.options import FleetOptions as Plain

from ...terminal.options import (
    OptionRecord,
    at_least,
    between,
    byte_size,
    entry,
)
from ...terminal.rows import option
from .needs import Need

_count = between(1, 1024)
_PLAIN = Plain()


def _bandwidth(text: str) -> int:
    return at_least(1, byte_size)(text.removesuffix("/s"))


@dataclass(frozen=True)
class FleetOptions(OptionRecord):
    """router_delay, kv_link_latency: nanoseconds. kv_link: bytes per second."""

    HEADING = "several replicas, each with its own cache"

    replicas: int | None = option(
        "replicas behind a router, each with the device and the host memory of the other options; "
        "one --storage serves all (default: one, without a router)",
        _count,
        "N",
    )
    prefill_replicas: int | None = option(
        "replicas that only prefill; the KV of each prompt moves to one of --decode-replicas",
        _count,
        "N",
    )
    decode_replicas: int | None = option("replicas that only decode", _count, "N")
    router: str | None = option(
        lambda: (
            "which replica gets a request: "
            f"{', '.join(registry.spellings(registry.ROUTERS))} (default: "
            f"{_PLAIN.router.name.replace('_', '-')})"
        ),
        entry(registry.ROUTERS),
        "NAME",
        needs=(Need.REPLICAS,),
    )
    kv_link: int | None = option(
        "bytes per second out of each prefill replica and into each decode replica, of all its "
        f"GPUs (default: {_PLAIN.link.bytes_per_s // 10**9}GB/s)",
        _bandwidth,
        "B",
        needs=(Need.DECODE,),
    )
