"""The options of `hicache replay` for trace, cache, components, model, hardware and engine.

Only names, parsers and help. What is not given is None; see replaying/settings and replaying/pools
for what it then is.
"""

from __future__ import annotations

import argparse

from hicache.core import registry
from hicache.core.types import Tier
from sim.options import EngineOptions

from ..outside.entries import entry
from ..replaying.device_sizes import OWN_STATES, PREFIX_TOKENS
from ..replaying.options import (
    BACKBONE,
    CHECKS,
    COMPONENTS,
    LOAD_THRESHOLD,
    MODEL,
    MODES,
    WRITE_POLICY,
)
from ..replaying.pools import STAND_IN_WINDOW
from ..replaying.wants import Pin, Pins
from ..terminal import options as read
from ._engine_options import add_engine
from ._options import add_trace, known_entries


def add_run(parser: argparse.ArgumentParser, check: str) -> None:
    """The trace and how it is replayed. check: the level without the option, in words."""
    add_trace(parser, optional=True)
    add = parser.add_argument
    add(
        "--stream",
        action="store_true",
        help="read a native trace of segments while it is replayed, in bounded memory; TRACE may "
        "then be generate:NAME:OPTION=VALUE,..., such as generate:random-tree:requests=10M "
        "(hicache replay alone)",
    )
    add(
        "--mode",
        type=read.choice(MODES),
        default="timed",
        help="timed: engine and virtual time; hits: one request at a time, no clock, exact counts",
    )
    add(
        "--sample",
        type=read.part,
        metavar="PART",
        help="only this part of the trace, such as 0.25: whole sessions and groups with a common "
        "prefix, chosen by a hash; sizes and load are not scaled (default: 1)",
    )
    add(
        "--speed",
        type=read.positive_ratio,
        metavar="X",
        help="play the trace's times X times as fast, arrivals and delays (default: 1)",
    )
    add(
        "--spread",
        action="store_true",
        default=None,
        help="requests of one instant arrive evenly until the next instant, for traces with a "
        "coarse clock; with a --seed above 0, at random times until then (default: only sessions "
        "that all begin at one instant, over the length of the longest)",
    )
    add(
        "--no-spread",
        dest="spread",
        action="store_false",
        default=None,
        help="requests of one instant arrive together, also the first ones of sessions",
    )
    add(
        "--skip-too-large",
        action="store_true",
        help="leave out requests that the device cannot hold, and count them",
    )
    add(
        "--seed",
        type=read.at_least(0),
        metavar="N",
        help="seed of what is random: arrivals that are drawn (--spread, --arrivals), and the "
        "simulated device: in how many parts it copies, and how late (at most 5 us) the engine "
        "sees the end of a copy, which changes the digest and hardly ever a printed figure "
        "(default: 0)",
    )
    add(
        "--check",
        type=read.choice(CHECKS),
        help="check invariants after every operation, at intervals (sampled), or not (off) "
        f"(default: {check})",
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    _add_cache(parser)
    _add_components(parser)
    add_engine(parser)


def _add_cache(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cache")
    add = group.add_argument
    add(
        "--page-size",
        type=read.at_least(1),
        metavar="TOKENS",
        help="tokens per page (default: the model's own, 64 for most)",
    )
    device = group.add_mutually_exclusive_group()
    device.add_argument(
        "--device-tokens",
        type=read.at_least(1),
        metavar="N",
        help="device pool in tokens (default: 90%% of the hardware's memory less the weights)",
    )
    device.add_argument(
        "--device-pages",
        type=read.device_pages,
        metavar="N",
        help="device pool in pages, or unbounded",
    )
    _add_policies(group)
    add(
        "--load-threshold",
        type=read.at_least(0),
        metavar="PAGES",
        help="recompute instead of loading host hits shorter than this (default: "
        f"{LOAD_THRESHOLD})",
    )
    add(
        "--load-quota",
        type=read.at_least(0),
        metavar="PAGES",
        help="recompute instead of loading host hits longer than this; 0 for no limit (default: 0)",
    )
    add(
        "--load-groups",
        type=read.at_least(1),
        metavar="N",
        help="layer groups of a load; a pass waits for a group just before it needs it (default: "
        f"{EngineOptions().layer_groups})",
    )


def add_host(parser: argparse.ArgumentParser) -> None:
    """The size of one host pool."""
    host = parser.add_mutually_exclusive_group()
    host.add_argument(
        "--host-ratio",
        type=read.ratio,
        metavar="R",
        help="host pages for each device page, such as 2 or 0.5; 0 for no host (default: 2 in "
        "timed mode, 0 in hits mode)",
    )
    host.add_argument("--host-pages", type=read.at_least(0), metavar="N", help="host pool in pages")
    host.add_argument(
        "--host-bytes",
        type=read.byte_size,
        metavar="B",
        help="host memory of all GPUs together, such as 512GB; 0 for none",
    )


def _add_policies(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--write-policy",
        type=entry(registry.WRITE_POLICIES),
        metavar="POLICY",
        help=f"when pages are copied to host: {known_entries(registry.WRITE_POLICIES)} (default: "
        f"{WRITE_POLICY})",
    )
    add(
        "--exclusive",
        action="store_true",
        help="a page that was loaded back gives up its host copy, so that both tiers together hold "
        "as much as one of their summed size (needs --write-policy write_back)",
    )
    add(
        "--eviction",
        type=entry(registry.EVICTION_POLICIES),
        default="lru",
        metavar="POLICY",
        help=f"eviction order: {known_entries(registry.EVICTION_POLICIES)}",
    )
    _add_wants(group)


def _add_wants(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--recompute-cost",
        type=_costs,
        metavar="TOKEN,POSITION",
        help="under --eviction cost_aware, what one token costs, and what it costs more for each "
        "1,024 tokens before it (default: 1000,33, about a dense model of 8B)",
    )
    add(
        "--ttl",
        type=read.duration_ns,
        metavar="TIME",
        help="copies that were not used for this time go, from device and host, such as 10m",
    )
    add(
        "--pin",
        type=_pins,
        metavar="REQUEST:TOKENS[@host]",
        help="the first tokens of a request's prompt stay on device, or on host, such as 17:4096; "
        "several separated by commas",
    )


def _costs(text: str) -> tuple[int, int]:
    token, found, position = text.partition(",")
    if not found:
        raise argparse.ArgumentTypeError(f"expected two numbers such as 1000,33, found {text!r}")
    return read.at_least(0)(token), read.at_least(0)(position)


def _pins(text: str) -> Pins:
    found = []
    for one in text.split(","):
        prefix, at, tier = one.partition("@")
        request, colon, tokens = prefix.partition(":")
        if not colon or (at and tier not in ("host", "device")):
            raise argparse.ArgumentTypeError(
                f"expected REQUEST:TOKENS, such as 17:4096 or 17:4096@host, found {one!r}"
            )
        where = Tier.HOST if tier == "host" else Tier.DEVICE
        found.append(Pin(read.request_number(request), read.at_least(1)(tokens), where))
    return Pins(found)


def _add_components(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(
        "components (pools besides full attention's; --model sets all of these)"
    ).add_argument
    add(
        "--components",
        type=_components,
        metavar="LIST",
        help=f"some of {', '.join(COMPONENTS)}, separated by commas (default: the model's); "
        f"without --model, the layers of {MODEL} are divided among them in turn",
    )
    at_least_1 = read.at_least(1)
    add(
        "--swa-window",
        type=at_least_1,
        metavar="TOKENS",
        help=f"window of swa (default: the model's, {STAND_IN_WINDOW:,} without a model)",
    )
    add(
        "--swa-tokens",
        type=at_least_1,
        metavar="N",
        help="device pool of swa in tokens (default: a window for each running request, one chunk, "
        f"and a window per {PREFIX_TOKENS:,} tokens of full; at most as many as full)",
    )
    add(
        "--mamba-states",
        type=at_least_1,
        metavar="N",
        help=f"device pool of mamba in states (default: {OWN_STATES} for each running request and "
        f"one per {PREFIX_TOKENS:,} tokens of full)",
    )
    add(
        "--mamba-interval",
        type=at_least_1,
        metavar="TOKENS",
        help="distance between stored states, a multiple of the page size (default: the model's, "
        "rounded up to pages; one page without a model)",
    )
    add(
        "--mamba-states-per-path",
        type=read.at_least(0),
        metavar="N",
        help="most states kept on one path of the tree; 0 for no limit (default: 0)",
    )


def _components(text: str) -> tuple[str, ...]:
    """Parses a list such as full,mamba; returns it in the project's order."""
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in COMPONENTS]
    if wrong or BACKBONE not in names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"expected {BACKBONE}, and each of {', '.join(COMPONENTS[1:])} at most once, "
            f"separated by commas, found {text!r}"
        )
    return tuple(name for name in COMPONENTS if name in names)
