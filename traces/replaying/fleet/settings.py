"""The settings of a fleet from the options of a replay: which belong together, and their defaults.

Does not parse options (see traces/commands/_replay_fleet) or run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hicache.core.errors import CallerError
from sim.fleet.options import FleetOptions, KvLinkOptions, RouterOptions
from sim.fleet.routers.base import reads_events

from ..options import ReplayOptions

_WEIGHTED = "prefix_aware"


def resolve(options: ReplayOptions, components: Sequence[str]) -> FleetOptions | None:
    """None for one replica without a router. Raises CallerError for options that do not belong
    together."""
    for name, expected, found, do in _wrong(options, components):
        option = f"--{name.replace('_', '-')}"
        raise CallerError(f"{option}: expected {expected}, found {found}; {do}")
    prefills = options.replicas or options.prefill_replicas
    if prefills is None:
        return None
    router: dict[str, Any] = {
        "name": _name(options) if options.router else None,
        "overlap_weight": options.router_overlap_weight,
        "delay_ns": options.router_delay,
        "index_pages": options.router_index_pages,
    }
    link: dict[str, Any] = {"bytes_per_s": options.kv_link, "latency_ns": options.kv_link_latency}
    return FleetOptions(
        prefills,
        options.decode_replicas or 0,
        replace(RouterOptions(), **_given(router)),
        replace(KvLinkOptions(), **_given(link)),
    )


def as_options(fleet: FleetOptions) -> dict[str, object]:
    """Every resolved option, by its name on the command line."""
    router, link = fleet.router, fleet.link
    found: dict[str, object] = {"replicas": fleet.replicas}
    if fleet.decode:
        found = {
            "prefill_replicas": fleet.replicas,
            "decode_replicas": fleet.decode,
            "kv_link_bytes_per_s": link.bytes_per_s,
            "kv_link_latency_s": link.latency_ns / 1e9,
        }
    found["router"] = router.name
    if router.name == _WEIGHTED:
        found["router_overlap_weight"] = float(router.overlap_weight)
    if reads_events(router.name):
        found["router_delay_s"] = router.delay_ns / 1e9
        found["router_index_pages"] = router.index_pages
    return found


def _name(options: ReplayOptions) -> str:
    return (options.router or RouterOptions().name).replace("-", "_")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _wrong(
    options: ReplayOptions, components: Sequence[str]
) -> Iterator[tuple[str, str, str, str]]:
    """(option, what was expected, what was found, what to do)."""
    divided = [name for name in ("prefill_replicas", "decode_replicas") if _has(options, name)]
    if divided and options.replicas is not None:
        both = f"--replicas and --{divided[0].replace('_', '-')}"
        kinds = "replicas that serve whole requests, or prefill and decode replicas"
        yield divided[0], kinds, both, "give one kind"
    if len(divided) == 1:
        other = {"prefill_replicas": "decode", "decode_replicas": "prefill"}[divided[0]]
        yield divided[0], f"--{other}-replicas beside it", "none", "give both"
    fleet = options.replicas is not None or bool(divided)
    for name in ("ttl", "pin"):
        if fleet and _has(options, name):
            yield name, "one replica", "several", "leave out the replicas, or the option"
    names = ("router", "router_overlap_weight", "router_delay", "router_index_pages")
    for name in names:
        if _has(options, name) and not fleet:
            yield name, "replicas to choose from", "one", "give --replicas, or leave it out"
    for name in ("kv_link", "kv_link_latency"):
        if _has(options, name) and not divided:
            do = "give --prefill-replicas and --decode-replicas, or leave it out"
            yield name, "decode replicas", "none", do
    if fleet:
        yield from _wrong_router(options)
        for name in ("flush_host_every_round", "flush_device_every_round"):
            if getattr(options, name):
                yield name, "one replica", "several", "leave it out"
    if divided and options.mode == "hits":
        do = "use --mode timed, or give --replicas"
        yield "decode_replicas", "--mode timed", "hits mode, which has no clock", do
    if divided and len(components) > 1:
        do = "give --components full, or --replicas"
        found = ",".join(components)
        yield "decode_replicas", "full attention alone, whose pages can be moved", found, do
    if divided and options.storage is not None:
        do = "leave it out, or give --replicas"
        yield "storage", "replicas that serve whole requests", "decode replicas", do


def _wrong_router(options: ReplayOptions) -> Iterator[tuple[str, str, str, str]]:
    name = _name(options)
    found = name.replace("_", "-")
    do = "give --router prefix-aware, or leave it out"
    if _has(options, "router_overlap_weight") and name != _WEIGHTED:
        yield "router_overlap_weight", f"--router {_WEIGHTED.replace('_', '-')}", found, do
    for option in ("router_delay", "router_index_pages"):
        if _has(options, option) and not reads_events(name):
            yield option, "a router that reads KV events", found, do
    if _has(options, "router_delay") and options.mode == "hits":
        no_clock = "hits mode, which has no clock"
        yield "router_delay", "--mode timed", no_clock, "use --mode timed, or leave it out"


def _has(options: ReplayOptions, name: str) -> bool:
    return getattr(options, name) is not None
