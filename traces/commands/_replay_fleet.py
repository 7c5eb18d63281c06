"""The options of `hicache replay` for several replicas. Only names, parsers and help; see
replaying/fleet for what they mean."""

from __future__ import annotations

import argparse

from hicache.core import registry
from sim.fleet.options import FleetOptions

from ..terminal import options as read

NAMES = (
    *("replicas", "prefill_replicas", "decode_replicas", "router", "router_overlap_weight"),
    *("router_delay", "router_index_pages", "kv_link", "kv_link_latency"),
)
_MOST = 1024
_PLAIN = FleetOptions()


def add_fleet(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("several replicas, each with its own cache").add_argument
    count = read.between(1, _MOST)
    add(
        "--replicas",
        type=count,
        metavar="N",
        help="replicas behind a router, each with the device and the host memory of the other "
        "options; one --storage serves all (default: one, without a router)",
    )
    add(
        "--prefill-replicas",
        type=count,
        metavar="N",
        help="replicas that only prefill; the KV of each prompt moves to one of --decode-replicas",
    )
    add("--decode-replicas", type=count, metavar="N", help="replicas that only decode")
    add(
        "--router",
        type=read.entry(registry.ROUTERS),
        metavar="NAME",
        help=f"which replica gets a request: {', '.join(registry.spellings(registry.ROUTERS))} "
        f"(default: {_PLAIN.router.name.replace('_', '-')})",
    )
    add(
        "--router-overlap-weight",
        type=read.ratio,
        metavar="W",
        help="prefix-aware: how much a token to compute counts against a token that is held "
        f"(default: {_PLAIN.router.overlap_weight})",
    )
    add(
        "--router-delay",
        type=read.duration_ns,
        metavar="TIME",
        help="KV events reach the router this much later (default: 0s)",
    )
    add(
        "--router-index-pages",
        type=read.at_least(1),
        metavar="N",
        help=f"pages that the router remembers at most (default: {_PLAIN.router.index_pages:,})",
    )
    add(
        "--kv-link",
        type=_bandwidth,
        metavar="B",
        help="bytes per second out of each prefill replica and into each decode replica, of all "
        f"its GPUs (default: {_PLAIN.link.bytes_per_s // 10**9}GB/s)",
    )
    add(
        "--kv-link-latency",
        type=read.duration_ns,
        metavar="TIME",
        help="time of a transfer before its first byte (default: "
        f"{_PLAIN.link.latency_ns // 1000}us)",
    )


def _bandwidth(text: str) -> int:
    return read.at_least(1, read.byte_size)(text.removesuffix("/s"))
