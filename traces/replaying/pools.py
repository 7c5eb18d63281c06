"""The components of a replay, and the sizes of their pools on device and host.

Decides model, components, windows, intervals and page counts from the options, with defaults for
what is not given. Does not divide the device (see device_sizes) or define what a component requires
of a path (see hicache/core/components).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest

import hicache.models as models
from hicache import registry
from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from hicache.core.write_policies.base import WritePolicy
from hicache.memory.plan import by_ratio, plan_pools
from hicache.models import ModelDescription
from sim.options import EngineOptions
from sim.times.base import Parallelism

from ..formats.base import Trace
from .defaults import BACKBONE, COMPONENTS, MODEL, STAND_IN_WINDOW, WRITE_POLICY, Mode
from .device_sizes import DeviceSizes, Plan, Short, option_of
from .options import ReplayOptions
from .unread import Unread, check_components

HOST_RATIO: dict[Mode, Fraction] = {"timed": Fraction(2), "hits": Fraction(0)}
# The books of a page take about 30 bytes of this machine's memory, and more with checks.
MOST_PAGES = 1 << 26
_BARE_NUMBER = 100_000  # fewer bytes than any page: gigabytes without their unit


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a replay.

    Per component, in order: the name, pages on each tier, and the rule behind each number.
    exchange: host pages kept for exchanges, a part of `host`; () without --exclusive. shorts: the
    pools on device that are too small for any request.
    """

    components: tuple[str, ...]
    device: tuple[int, ...]
    host: tuple[int, ...]
    device_rules: tuple[str, ...]
    host_rules: tuple[str, ...]
    exchange: tuple[int, ...]
    window: int
    interval: int
    shorts: tuple[Short, ...]


def model_of(options: ReplayOptions) -> ModelDescription:
    """The model that was named, or the default one with pools for the components asked for; with
    the types of weights and rows that were named.

    Raises CallerError if the model lacks a pool for a component, or has one that was not asked for.
    """
    model = _described(options)
    if options.weight_dtype is not None:
        model = models.stored(model, options.weight_dtype)
    if options.kv_dtype is not None:
        model = models.cached_as(model, options.kv_dtype)
    return model


def _described(options: ReplayOptions) -> ModelDescription:
    wanted = options.components
    if options.model is None:
        usual = models.get(MODEL)
        if wanted is None or len(wanted) == 1:
            check_components(options, (BACKBONE,))
            return usual
        check_components(options, wanted)
        return models.as_hybrid(usual, wanted, options.swa_window or STAND_IN_WINDOW, 0)
    model = models.get(options.model)
    components = tuple(name for name in COMPONENTS if name in model.components)
    if len(components) < len(model.components) or BACKBONE not in components:
        raise CallerError(
            f"--model: expected pools of {', '.join(COMPONENTS)}, found those of {model.name} for "
            f"{', '.join(model.components)}; correct its components"
        )
    if wanted is not None and wanted != components:
        raise CallerError(
            f"--components: expected {','.join(components)}, for which {model.name} has pools, "
            f"found {','.join(wanted)}; name another --model (`hicache models` lists them) or none"
        )
    check_components(options, components)
    return model


def resolve(
    options: ReplayOptions,
    model: ModelDescription,
    memory: int,
    page_size: int,
    engine: EngineOptions,
    trace: Trace,
) -> Pools:
    """The pools of a replay. Raises CallerError where a size cannot be resolved.

    memory: bytes of device memory for the weights and all pools of a rank.
    """
    components = tuple(name for name in COMPONENTS if name in model.components)
    window = interval = 0
    for name in components:
        if residency(name) == "window":
            window = option_of(options, name, "window") or model.window(name)
            if window < 1:
                raise CallerError(
                    f"--{name}-window: expected a window of 1 token or more, found none in "
                    f"{model.name}; give one"
                )
        elif residency(name) == "state":
            interval = max(1, -(-model.interval(name) // page_size)) * page_size
    plan = DeviceSizes(options, Plan(model, memory, page_size, window, interval, engine))
    full, rule = plan.full(trace.jobs)
    device, rules = [full], [rule]
    for name in components[1:]:
        pages, rule = plan.other(name, full)
        device.append(pages)
        rules.append(rule)
    host, host_rules = _host(options, model, page_size, dict(zip(components, device, strict=True)))
    exchange = _exchange(options, components, host, plan.window_pages, page_size, trace)
    if exchange:
        host_rules = [
            f"{rule}, and {pages:,} for exchanges" if pages else rule
            for rule, pages in zip(host_rules, exchange, strict=True)
        ]
    found = Pools(
        components,
        tuple(device),
        tuple(size + more for size, more in zip_longest(host, exchange, fillvalue=0)),
        tuple(rules),
        tuple(host_rules),
        exchange,
        window,
        interval,
        tuple(plan.shorts),
    )
    _check_bookkeeping(found)
    return found


def _check_bookkeeping(pools: Pools) -> None:
    """Raises CallerError for pools whose books would not fit the memory of this machine."""
    for tier, pages in (("device", pools.device), ("host", pools.host)):
        if max(pages) > MOST_PAGES:
            raise CallerError(
                f"{tier} pool: expected at most {MOST_PAGES} pages, found {max(pages)}; give "
                "fewer, or a larger --page-size"
            )


def _exchange(
    options: ReplayOptions,
    components: Sequence[str],
    host: Sequence[int],
    window_pages: int,
    page_size: int,
    trace: Trace,
) -> tuple[int, ...]:
    """Host pages besides the pool, per component, for one load and the evictions that it needs.

    At most the longest prompt, a window, or a state. () without --exclusive. Raises CallerError if
    the write policy or the host pool rules it out.
    """
    if not options.exclusive:
        return ()
    named = options.write_policy or WRITE_POLICY
    policy = _policy(named)
    if policy.contiguous or not policy.on_evict or not host[0]:
        what = f"--write-policy {named}" if host[0] else "no host pool"
        said = (
            "--exclusive: expected a host pool and a write policy that copies on eviction, found "
            f"{what}; give --write-policy write_back and --host-ratio, --host-pages or --host-bytes"
        )
        raise CallerError(said) if host[0] else Unread(said, "exclusive")
    longest = -(-int(trace.jobs.input_lengths.max(initial=1)) // page_size)
    most = {"path": longest, "window": window_pages + 1, "state": 1}
    sizes = zip(components, host, strict=True)
    return tuple(most[residency(name)] if size else 0 for name, size in sizes)


def _policy(name: str) -> WritePolicy:
    policy: WritePolicy = registry.load(registry.WRITE_POLICIES, name).policy()
    return policy


def _host(
    options: ReplayOptions, model: ModelDescription, page_size: int, device: dict[str, int]
) -> tuple[list[int], list[str]]:
    """Pages on host and the rule behind each number. device: pages of each component."""
    ratio = options.host_ratio
    if options.host_pages is not None:
        full = options.host_pages
        others = [max(1, full * size // device[BACKBONE]) for size in [*device.values()][1:]]
        rule = "as given" if len(device) == 1 else f"as given for {BACKBONE}"
        pages, rules = ([full, *others] if full else []), [rule] * len(device)
    elif options.host_bytes is not None:
        total = options.host_bytes
        rule = "as given" if len(device) == 1 else "its share of --host-bytes"
        pages, rules = [], [rule] * len(device)
        if total:
            planned = _planned(model, page_size, device, total, options.parallelism)
            pages = [planned[name] for name in device]
    else:
        if ratio is None:  # storage is behind host memory, so there is some
            ratio = HOST_RATIO["timed" if options.storage else options.mode]
        pages, rules = _by_ratio(device, ratio) if ratio else ([], [])
    if not pages:
        return [0] * len(device), ["none"] * len(device)
    named = options.write_policy or WRITE_POLICY
    if pages[0] <= device[BACKBONE] + 1 and not _policy(named).on_evict:
        rules[0] += f"; with {named} mostly copies of the device's pages"
    return pages, rules


def _planned(
    model: ModelDescription, page_size: int, device: dict[str, int], total: int, ranks: Parallelism
) -> Mapping[str, int]:
    """Pages of each component in `total` bytes. The error for a bare number suggests a unit."""
    try:
        tp, pp, among = ranks.attention_tp, ranks.pp, ranks.among_on_host
        return plan_pools(
            model, page_size, device, total_bytes=total, tp=tp, pp=pp, among=among
        ).pages
    except CallerError as error:
        hint = f"; did you mean {total}GB?" if total < _BARE_NUMBER else ""
        raise CallerError(f"{error}{hint}") from None


def _by_ratio(device: dict[str, int], ratio: Fraction) -> tuple[list[int], list[str]]:
    if device[BACKBONE] * ratio < 1:
        raise CallerError(
            f"--host-ratio: expected at least a page of host for the {device[BACKBONE]} pages on "
            f"device, found {float(ratio):g}; give a larger one, or 0 for no host"
        )
    pages, rules = [*by_ratio(device, ratio).values()], []
    for size, on_device in zip(pages, device.values(), strict=True):
        more = size - int(on_device * ratio)
        rules.append(f"{float(ratio):g} x device" + f" and {more} more" * bool(more))
    return pages, rules
