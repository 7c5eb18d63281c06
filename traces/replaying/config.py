"""What a replay is: its options, resolved once into pages, bytes, profiles and a core's `Config`.

Everything after it (the run, the report) reads `ReplayConfig` and asks no option again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from hicache import registry
from hicache.core.components.base import Component, Shape, residency, settings_for
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.memory.pieces import CopyShape, all_shapes, outside
from hicache.models import ModelDescription
from hicache.runtime.config_document import document, settings_names
from invariants.watch import Level
from sim import engine_profiles
from sim.engine.sequence import final_length
from sim.fitted import factors as fitted
from sim.fleet.options import FleetOptions, KvLinkOptions, RouterOptions
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.options import EngineOptions, engine_options
from sim.times import base as times
from sim.times.base import Parallelism, TimeModel
from sim.wants import NO_WANTS, PERIODS, PinnedPrefix, WantOptions

from ..formats.base import Paged, Trace, need_identity
from ..terminal.options import Bandwidth, flag
from .defaults import HARDWARE, HOST_COPIES, PREFETCH_THRESHOLD_TOKENS, WRITE_POLICY, Mode
from .load import LoadedTrace, LoadSettings, Slo, settings_of
from .options import ReplayOptions, check_read
from .sizes import Pools, Skipped, check_fit, memory_of, model_of, pools_of
from .storage import StorageSettings
from .storage import resolve as resolve_storage


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Everything that determines the outcome of a replay. `pools` records the rule of each size.

    skipped: the requests that were left out. uncached: those that are computed without the cache,
    because the device cannot hold them. storage: None without one. flushed: the tiers that are
    emptied between rounds. fleet: None for one replica without a router. given: what the head of a
    document has as it was given.
    """

    mode: Mode
    check: Level
    seed: int
    limit: int
    model: ModelDescription
    hardware: HardwareProfile
    parallelism: Parallelism
    times: str
    host_bandwidth: Bandwidth
    speed: Fraction
    spread: bool
    core: Config
    engine: EngineOptions
    pools: Pools
    page_size_given: bool
    skipped: Skipped
    storage: StorageSettings | None = None
    flushed: tuple[Tier, ...] = ()
    slo: Slo | None = None
    uncached: Skipped = field(default_factory=Skipped)
    load: LoadSettings = field(default_factory=LoadSettings)
    fleet: FleetOptions | None = None
    wants: WantOptions = NO_WANTS
    given: Mapping[str, object] = field(default_factory=dict)

    @property
    def whole_prompts(self) -> bool:
        """Whether the last token of a prompt may hit. An engine computes it."""
        return self.mode == "hits"

    @property
    def tp(self) -> int:
        """Accelerators of a pipeline stage."""
        return self.parallelism.tp

    @property
    def page_ranks(self) -> int:
        """Accelerators that share a page."""
        return self.parallelism.attention_tp

    @property
    def time_model(self) -> TimeModel:
        """The durations of this run's passes."""
        engine = self.engine.profile
        return times.make(self.times, self.model, self.hardware, self.parallelism, engine)

    @property
    def value_bytes(self) -> dict[str, int]:
        """Bytes in storage of one page or state of each component, of all ranks together. A pool
        that is identical on all ranks is stored once."""
        size, tp, dcp = self.core.page_size, self.page_ranks, self.parallelism.dcp
        return {
            name: sum(
                pool.page_bytes(size, tp)
                if pool.replicated
                else pool.page_bytes(size, tp, dcp) * tp
                for pool in self.model.pools_of(name)
            )
            for name in self.core.components
        }

    @property
    def page_bytes(self) -> tuple[int, ...]:
        """Bytes of one page or state of each component, on one rank of each pipeline stage
        together."""
        return self._page_bytes(self.model, self.parallelism.dcp)

    @property
    def host_page_bytes(self) -> tuple[int, ...]:
        """The same in host memory. Of what ranks keep once, a rank has its part."""
        return self._page_bytes(self.model, self.parallelism.among_on_host)

    @property
    def rank_page_bytes(self) -> tuple[int, ...]:
        """`page_bytes` on a rank of the stage that has most of the component."""
        return self._most_page_bytes(self.parallelism.dcp)

    @property
    def rank_host_page_bytes(self) -> tuple[int, ...]:
        """`host_page_bytes` on a rank of the stage that has most of the component."""
        return self._most_page_bytes(self.parallelism.among_on_host)

    def _most_page_bytes(self, among: int) -> tuple[int, ...]:
        stages = self.model.stages(self.parallelism.pp)
        return tuple(map(max, zip(*(self._page_bytes(one, among) for one in stages), strict=True)))

    def _page_bytes(self, model: ModelDescription, among: int) -> tuple[int, ...]:
        size, tp = self.core.page_size, self.page_ranks
        return tuple(model.bytes_per_page(name, size, tp, among) for name in self.core.components)

    def bytes_of(self, pages: Counter[str], sizes: Sequence[int]) -> int:
        """Bytes of so many pages or states of each component, with one of these sizes."""
        each = zip(self.core.components, sizes, strict=True)
        return sum(pages[name] * size for name, size in each)

    @property
    def page_bytes_total(self) -> dict[str, int]:
        """Bytes of one page or state of each component, on all ranks together."""
        return self._on_all(self.page_bytes)

    @property
    def host_page_bytes_total(self) -> dict[str, int]:
        """The same in host memory."""
        return self._on_all(self.host_page_bytes)

    def _on_all(self, sizes: Sequence[int]) -> dict[str, int]:
        each = zip(self.core.components, sizes, strict=True)
        return {name: size * self.page_ranks for name, size in each}

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights on a rank of the pipeline stage that has most."""
        return times.rank_weight_bytes(self.model, self.parallelism)

    @property
    def unlike_measured(self) -> tuple[CopyShape, ...]:
        """The shapes of this model's copies that a measured profile does not cover. Empty if copy
        times do not come from a measurement."""
        measured = self.hardware.geometry
        if not measured:
            return ()
        size = self.core.page_size // self.parallelism.dcp
        used = all_shapes(self.model, size, str(measured["layout"]), self.page_ranks)
        return outside(used, measured["shapes"])

    def as_options(self) -> dict[str, object]:
        """Every resolved option, by its name on the command line."""
        core, engine = self.core, self.engine
        found: dict[str, object] = {
            **self.given,
            "model": self.model.name,
            "weight_dtype": self.model.weight_dtype,
            "weight_bytes_per_rank": self.weight_bytes,
            "weight_bytes_total": self.model.weight_bytes,
            "kv_dtype": self.model.kv_dtype,
            "hardware": self.hardware.name,
            "ep": self.parallelism.ep,
            "attention_dp": self.parallelism.attention_dp,
            "dcp": self.parallelism.dcp,
            "host_copies": HOST_COPIES[self.parallelism.shared_host],
            "engine": engine.profile.label,
            "times": self.times,
            "page_size": core.page_size,
            "page_size_from": "option" if self.page_size_given else "model",
            "device_pages": core.device_pages[0],
            "device_tokens": core.device_pages[0] * core.page_size,
            "host_pages": core.host_pages[0],
            "host_tokens": core.host_pages[0] * core.page_size,
            "components": list(core.components),
            **self._of_components(),
            "host_bandwidth": str(self.host_bandwidth),
            "host_link_bytes_per_s_per_rank": self.hardware.reached_link_bytes_per_s,
            "write_policy": core.write_policy,
            "exclusive": bool(core.exchange_pages),
            "exchange_pages": list(core.exchange_pages),
            "eviction_policy": core.eviction_policy,
            "scheduler": engine.order,
            "token_budget": engine.token_budget,
            "max_running": engine.max_running,
            "check": self.check,
            "speed": float(self.speed),
            "spread": self.spread,
            "limit": self.limit or None,
            "seed": self.seed,
            **self.load.as_options(),
        }
        if self.storage is not None:
            found |= self.storage.as_options()
            found["prefetch_threshold"] = core.prefetch_threshold_tokens
        if self.storage is not None or self.flushed:
            for tier in (Tier.HOST, Tier.DEVICE):
                found[f"flush_{tier.name.lower()}_every_round"] = tier in self.flushed
        if self.fleet is not None:
            found |= _fleet_as_options(self.fleet)
        if self.wants.ttl_ns:
            found["ttl_s"] = self.wants.ttl_ns / 1e9
        if self.wants.pins:
            found["pins"] = [
                {"request": pin.place, "pages": pin.pages, "tier": pin.tier.name.lower()}
                for pin in self.wants.pins
            ]
        return found

    def _of_components(self) -> dict[str, object]:
        core, found = self.core, dict[str, object]()
        written = document(core)
        for name, device, host in zip(
            core.components, core.device_pages, core.host_pages, strict=True
        ):
            found |= {key: written[key] for key in settings_names(name)}
            if residency(name) == "window":
                found[f"{name}_tokens"] = device * core.page_size
                found[f"{name}_host_tokens"] = host * core.page_size
            elif residency(name) == "state":
                found[f"{name}_states"] = device
                found[f"{name}_host_states"] = host
        return found


def resolve(options: ReplayOptions, trace: Trace) -> tuple[ReplayConfig, Paged]:
    """The configuration for this trace, and its pages. Raises CallerError where sizes do not fit,
    and for an option that the run would not read."""
    model, ranks = model_of(options), options.parallelism
    times.check_ranks(model, ranks)
    page_size = options.page_size or model.page_size
    if options.mode == "hits":
        need_identity(trace, "--mode hits")
    _check_page_size(model, page_size, ranks.dcp)
    paged = trace.paged(page_size)
    profile = _with_bandwidth(hardware.get(options.hardware or HARDWARE), options.host_bandwidth)
    engine = _engine(options, model)
    pools = pools_of(options, model, memory_of(profile), page_size, engine, trace)
    named = options.times or times.DEFAULT
    if options.mode == "timed":  # raises if the ranks cannot hold the weights
        times.make(named, model, profile, ranks, engine.profile)
    check_read(options, pools.components, bool(pools.host[0]))
    storage = resolve_storage(options, trace)
    wants = _wants(options, trace, paged, pools)
    core = _core(options, page_size, pools, storage, wants)
    skipped, uncached = check_fit(trace, paged, options, pools)
    config = ReplayConfig(
        mode=options.mode,
        check=options.check or "sampled",
        seed=options.seed or 0,
        limit=options.limit,
        model=model,
        hardware=profile,
        parallelism=ranks,
        times=named,
        host_bandwidth=options.host_bandwidth or Bandwidth(Fraction(1)),
        speed=options.speed or Fraction(1),
        spread=bool(options.spread or (isinstance(trace, LoadedTrace) and trace.spaced)),
        core=core,
        engine=engine,
        pools=pools,
        page_size_given=options.page_size is not None,
        skipped=skipped,
        uncached=uncached,
        storage=storage,
        flushed=tuple(
            tier
            for tier in (Tier.HOST, Tier.DEVICE)
            if getattr(options, f"flush_{tier.name.lower()}_every_round")
        ),
        slo=options.slo,
        load=settings_of(options),
        fleet=_fleet(options, pools.components),
        wants=wants,
        given=options.head,
    )
    return config, paged


def components_of(core: Config) -> list[Component]:
    """The components of a core, in order."""
    return [registry.load(registry.COMPONENTS, name).component(core) for name in core.components]


def _core(
    options: ReplayOptions,
    page_size: int,
    pools: Pools,
    storage: StorageSettings | None,
    wants: WantOptions,
) -> Config:
    more: dict[str, Any] = {"ttl_periods": PERIODS} if wants.ttl_ns else {}
    if storage is not None:
        least = options.prefetch_threshold
        more["storage"], more["prefetch_policy"] = True, storage.policy
        more["prefetch_threshold_tokens"] = PREFETCH_THRESHOLD_TOKENS if least is None else least
    core = Config(
        page_size=page_size,
        device_pages=pools.device,
        host_pages=pools.host,
        components=pools.components,
        write_policy=options.write_policy or WRITE_POLICY,
        eviction_policy=options.eviction,
        exchange_pages=pools.exchange,
        passes=options.pp if options.mode == "timed" else 1,
        settings=settings_for(pools.components, Shape(pools.window, pools.interval)),
        branch_states=pools.branch_states,
        **more,
    )
    components = components_of(core)
    for component, pages in zip(components, core.device_pages, strict=True):
        if pages < component.least_pages:
            raise CallerError(
                f"device pool of {component.name}: expected at least {component.least_pages} pages "
                f"of {page_size} tokens, which any request needs, found {pages}; enlarge it"
            )
    bounds: dict[str, Any] = {}  # what the pins need
    for tier, name in ((Tier.DEVICE, "pin_pages"), (Tier.HOST, "pin_host_pages")):
        pins = [pin for pin in wants.pins if pin.tier == tier]
        if pins:
            bounds[name] = tuple(
                sum(min(pin.pages, one.window_pages) if one.positional else 1 for pin in pins)
                for one in components
            )
    return replace(core, **bounds)


def _engine(options: ReplayOptions, model: ModelDescription) -> EngineOptions:
    """The settings of the engine: what was given, and the engine's own defaults."""
    named = options.engine or engine_profiles.DEFAULT
    profile = engine_profiles.get(named)
    if not engine_profiles.is_path(named):  # a user's own says what it means
        profile = fitted.engine(profile, options.hardware or HARDWARE, model.name)
    groups = options.parallelism.attention_dp
    engine = engine_options(profile, groups, options.token_budget, options.max_running)
    return replace(engine, order=options.scheduler or engine.order)


def _check_page_size(model: ModelDescription, page_size: int, dcp: int) -> None:
    """Raises CallerError, with a size that works, for one that a pool of the model cannot have, or
    that the ranks of a context parallel group cannot divide."""
    row = math.lcm(*(pool.compression for pool in model.pools))
    multiple = dcp * row
    if page_size % multiple:
        who = f"{dcp} ranks divide" if dcp > 1 else f"share a row of {model.name}"
        good = -(-model.page_size // multiple) * multiple
        own = ", the model's own, or none" if good == model.page_size else ""
        raise CallerError(
            f"--page-size: expected a multiple of {multiple}, the tokens that {who}, found "
            f"{page_size}; give {good}{own}"
        )


def _with_bandwidth(profile: HardwareProfile, wanted: Bandwidth | None) -> HardwareProfile:
    """The profile with this host link; itself if none was asked for."""
    if wanted is None:
        return profile
    if wanted.bytes_per_s:
        # the user states the bandwidth that copies reach, not a peak
        return replace(profile, link_bytes_per_s=wanted.bytes_per_s, link_permille=1000, curves={})
    return hardware.scaled_host_bandwidth(profile, *wanted.factor.as_integer_ratio())


def _wants(options: ReplayOptions, trace: Trace, paged: Paged, pools: Pools) -> WantOptions:
    """Pinned prefixes and the time to live. Raises CallerError for a pin of a prefix that the trace
    does not have or that leaves too little room, and for a time to live without times."""
    if options.ttl and options.mode == "hits" and (followers := trace.jobs.afters >= 0).any():
        raise CallerError(
            f"--ttl: expected a time of arrival for every request in hits mode, found "
            f"{int(followers.sum())} that follow others; use --mode timed"
        )
    found, pinned = [], Counter[Tier]()
    for pin in options.pin or ():
        if pin.request >= len(trace.jobs):
            raise CallerError(
                f"--pin: expected a request from 0 to {len(trace.jobs) - 1}, found {pin.request}"
            )
        most = paged.prompt_key(trace.jobs[pin.request]).pages
        pages = pin.tokens // paged.page_size
        if not 0 < pages <= most:
            raise CallerError(
                f"--pin {pin}: expected {paged.page_size} to {most * paged.page_size} tokens (the "
                f"whole pages of that prompt), found {pin.tokens}"
            )
        found.append(PinnedPrefix(pin.request, pages, pin.tier))
        pinned[pin.tier] += pages
    if pinned[Tier.HOST] > pools.host[0]:
        raise CallerError(
            f"--pin: expected at most the {pools.host[0]} pages of host, found "
            f"{pinned[Tier.HOST]}; enlarge the host pool"
        )
    if pinned[Tier.DEVICE]:
        largest = max(-(-final_length(job) // paged.page_size) for job in paged.jobs)
        if pinned[Tier.DEVICE] + largest > pools.device[0]:
            raise CallerError(
                f"--pin: expected at most {max(0, pools.device[0] - largest)} pages beside the "
                f"largest request's {largest}, found {pinned[Tier.DEVICE]}; pin less, or on host"
            )
    return WantOptions(options.ttl or 0, tuple(found))


# -- several replicas


def _fleet(options: ReplayOptions, components: Sequence[str]) -> FleetOptions | None:
    """None for one replica without a router. Raises CallerError for options that do not belong
    together."""
    for name, expected, found, do in _contradictions(options, components):
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


def _fleet_as_options(fleet: FleetOptions) -> dict[str, object]:
    found: dict[str, object] = {"replicas": fleet.replicas}
    if fleet.decode:
        found = {
            "prefill_replicas": fleet.replicas,
            "decode_replicas": fleet.decode,
            "kv_link_bytes_per_s": fleet.link.bytes_per_s,
        }
    return {**found, "router": fleet.router.name.replace("_", "-")}


def _contradictions(
    options: ReplayOptions, components: Sequence[str]
) -> Iterator[tuple[str, str, str, str]]:
    """(option, what was expected, what was found, what to do)."""
    others = {"prefill_replicas": "decode", "decode_replicas": "prefill"}
    divided = [name for name in others if getattr(options, name) is not None]
    if not divided:
        return
    if options.replicas is not None:
        kinds = "replicas that serve whole requests, or prefill and decode replicas"
        yield divided[0], kinds, f"--replicas and {flag(divided[0])}", "give one kind"
    if len(divided) == 1:
        yield divided[0], f"--{others[divided[0]]}-replicas beside it", "none", "give both"
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
