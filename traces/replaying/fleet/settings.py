"""The settings of a fleet from the options of a replay: which belong together, and their defaults.

Does not parse options (see declared/fleet), refuse what is not read (see unread) or run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hicache.core.errors import CallerError
from sim.fleet.options import FleetOptions, KvLinkOptions, RouterOptions

from ...terminal.rows import flag
from ..options import ReplayOptions


def resolve(options: ReplayOptions, components: Sequence[str]) -> FleetOptions | None:
    """None for one replica without a router. Raises CallerError for options that do not belong
    together."""
    for name, expected, found, do in _wrong(options, components):
        raise CallerError(f"{flag(name)}: expected {expected}, found {found}; {do}")
    prefills = options.replicas or options.prefill_replicas
    if prefills is None:
        return None
    router, link = RouterOptions(), KvLinkOptions()
    if options.router:
        router = RouterOptions(options.router.replace("-", "_"))
    if options.kv_link:
        link = KvLinkOptions(options.kv_link)
    return FleetOptions(prefills, options.decode_replicas or 0, router, link)


def as_options(fleet: FleetOptions) -> dict[str, object]:
    """Every resolved option, by its name on the command line."""
    router, link = fleet.router, fleet.link
    found: dict[str, object] = {"replicas": fleet.replicas}
    if fleet.decode:
        found = {
            "prefill_replicas": fleet.replicas,
            "decode_replicas": fleet.decode,
            "kv_link_bytes_per_s": link.bytes_per_s,
        }
    found["router"] = router.name.replace("_", "-")
    return found


def _wrong(
    options: ReplayOptions, components: Sequence[str]
) -> Iterator[tuple[str, str, str, str]]:
    """(option, what was expected, what was found, what to do)."""
    divided = [name for name in ("prefill_replicas", "decode_replicas") if _has(options, name)]
    if not divided:
        return
    if options.replicas is not None:
        kinds = "replicas that serve whole requests, or prefill and decode replicas"
        yield divided[0], kinds, f"--replicas and {flag(divided[0])}", "give one kind"
    if len(divided) == 1:
        other = {"prefill_replicas": "decode", "decode_replicas": "prefill"}[divided[0]]
        yield divided[0], f"--{other}-replicas beside it", "none", "give both"
    if options.mode == "hits":
        do = "use --mode timed, or give --replicas"
        yield "decode_replicas", "--mode timed", "hits mode, which has no clock", do
    if options.pp > 1:
        yield "decode_replicas", "--pp 1", str(options.pp), "leave out --pp, or give --replicas"
    if len(components) > 1:
        do = "give --components full, or --replicas"
        found = ",".join(components)
        yield "decode_replicas", "full attention alone, whose pages can be moved", found, do
    if options.storage is not None:
        do = "leave it out, or give --replicas"
        yield "storage", "replicas that serve whole requests", "decode replicas", do


def _has(options: ReplayOptions, name: str) -> bool:
    return getattr(options, name) is not None
