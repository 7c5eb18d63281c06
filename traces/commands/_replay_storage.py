"""The options of `hicache replay` for storage. Only names, parsers and help; see
replaying/storage for what they mean."""

from __future__ import annotations

import argparse

from hicache.core import registry
from sim.storage.options import StoreOptions

from ..replaying.options import PREFETCH_THRESHOLD_TOKENS
from ..replaying.storage import LIMITS_NS, POLICY
from ..terminal import options as read

NAMES = (
    *("storage", "storage_size", "storage_bandwidth", "storage_latency"),
    *("prefetch", "prefetch_threshold", "prefetch_budget", "prefetch_limit"),
    *("flush_host_every_round", "flush_device_every_round"),
)
_LINK = StoreOptions()


def add_storage(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("storage, the tier behind host memory").add_argument
    add(
        "--storage",
        type=read.name,
        metavar="ADDRESS",
        help="sim:read=6GB/s,write=3GB/s,latency=200us for a store in virtual time; file:DIR, "
        "redis://HOST:PORT, mooncake://HOST:PORT or s3://BUCKET?endpoint=URL for a real one, which "
        "keeps small values that stand for pages (docs/storage_replay.md)",
    )
    add(
        "--storage-size",
        type=read.at_least(1, read.byte_size),
        metavar="B",
        help="most bytes of pages in storage, such as 20G; the least recently used go first "
        "(default: no limit)",
    )
    add(
        "--storage-bandwidth",
        type=_bandwidths,
        metavar="READ[,WRITE]",
        help="simulated bytes per second of a real store (default: "
        f"{_LINK.read_bytes_per_s // 10**9}GB,{_LINK.write_bytes_per_s // 10**9}GB)",
    )
    add(
        "--storage-latency",
        type=read.duration_ns,
        metavar="TIME",
        help="simulated time of a real store before the first byte of a batch (default: "
        f"{_LINK.latency_ns // 1000}us)",
    )
    add(
        "--prefetch",
        type=read.entry(registry.PREFETCH_POLICIES),
        metavar="POLICY",
        help="whether a request waits for its prefetch: "
        f"{', '.join(registry.spellings(registry.PREFETCH_POLICIES))} (default: "
        f"{POLICY.replace('_', '-')})",
    )
    add(
        "--prefetch-threshold",
        type=read.at_least(0),
        metavar="TOKENS",
        help=f"do not fetch fewer tokens than this (default: {PREFETCH_THRESHOLD_TOKENS})",
    )
    add(
        "--prefetch-budget",
        type=read.at_least(1),
        metavar="TOKENS",
        help="tokens that may be looked up and fetched at a time (default: the host pool)",
    )
    limits = [f"{base / 1e9:g}s for {name}" for name, (base, _) in LIMITS_NS.items()]
    add(
        "--prefetch-limit",
        type=_limit,
        metavar="TIME[,TIME]",
        help="a request waits no longer than this for its prefetch, and this for each token that "
        f"is missing (default: {', '.join(limits)}; for each token 244us and ten times that)",
    )
    for tier in ("host", "device"):
        add(
            f"--flush-{tier}-every-round",
            action="store_true",
            default=None,
            help=f"empty the {tier} between the rounds of conversations; a round begins when the "
            "one before has ended",
        )


def _bandwidths(text: str) -> tuple[int, int]:
    parts = [read.at_least(1, read.byte_size)(part.removesuffix("/s")) for part in text.split(",")]
    if len(parts) > 2:
        raise argparse.ArgumentTypeError(f"expected READ or READ,WRITE, found {text!r}")
    return parts[0], parts[-1]


def _limit(text: str) -> tuple[int, int]:
    parts = [read.duration_ns(part) for part in text.split(",")]
    if len(parts) > 2:
        raise argparse.ArgumentTypeError(f"expected TIME or TIME,TIME, found {text!r}")
    return parts[0], parts[1] if len(parts) > 1 else 0
