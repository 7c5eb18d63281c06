"""The settings of a replay: all options with their defaults resolved.

Turns what the user asked for (tokens, ratios, nothing at all) into page counts and profiles, and
raises CallerError where that is impossible. Does not parse the command line; see
traces/commands/replay.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
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
from sim.fitted import factors as fitted
from sim.fleet.options import FleetOptions
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.options import EngineOptions, engine_options
from sim.times import base as times
from sim.times.base import Parallelism, TimeModel
from sim.wants import NO_WANTS, WantOptions

from ..formats.base import Paged, Trace, need_identity
from ..terminal.options import Bandwidth
from . import pools
from .defaults import (
    HARDWARE,
    HOST_COPIES,
    PREFETCH_THRESHOLD_TOKENS,
    WRITE_POLICY,
    Mode,
)
from .device_sizes import memory_of
from .fitting import Skipped, check_fit
from .fleet.settings import as_options as fleet_as_options
from .fleet.settings import resolve as resolve_fleet
from .load import LoadedTrace, LoadSettings, Slo, settings_of
from .options import ReplayOptions
from .pools import Pools
from .storage import StorageSettings
from .storage import resolve as resolve_storage
from .unread import check_read
from .wants import check_room, core_options, wants_of
from .ways import Holding


@dataclass(frozen=True, slots=True)
class Settings:
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
        return {
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
            **self._of_storage(),
            **(fleet_as_options(self.fleet) if self.fleet is not None else {}),
            **self._of_wants(),
        }

    def _of_wants(self) -> dict[str, object]:
        found = dict[str, object]()
        if self.wants.ttl_ns:
            found["ttl_s"] = self.wants.ttl_ns / 1e9
        if self.wants.pins:
            found["pins"] = [
                {"request": pin.place, "pages": pin.pages, "tier": pin.tier.name.lower()}
                for pin in self.wants.pins
            ]
        return found

    def _of_storage(self) -> dict[str, object]:
        flushed: dict[str, object] = {
            f"flush_{tier.name.lower()}_every_round": tier in self.flushed
            for tier in (Tier.HOST, Tier.DEVICE)
        }
        if self.storage is None:
            return flushed if self.flushed else {}
        return {
            **self.storage.as_options(),
            "prefetch_threshold": self.core.prefetch_threshold_tokens,
            **flushed,
        }

    def _of_components(self) -> dict[str, object]:
        core = self.core
        result: dict[str, object] = {}
        for place, name in enumerate(core.components):
            device, host = core.device_pages[place], core.host_pages[place]
            config = document(core)
            result |= {key: config[key] for key in settings_names(name)}
            if residency(name) == "window":
                result[f"{name}_tokens"] = device * core.page_size
                result[f"{name}_host_tokens"] = host * core.page_size
            elif residency(name) == "state":
                result[f"{name}_states"] = device
                result[f"{name}_host_states"] = host
        return result


def resolve(options: ReplayOptions, trace: Trace) -> tuple[Settings, Paged]:
    """The settings for this trace, and its pages. Raises CallerError where sizes do not fit, and
    for an option that the run would not read."""
    model = pools.model_of(options)
    times.check_ranks(model, options.parallelism)
    page_size = options.page_size or model.page_size
    if options.mode == "hits":
        need_identity(trace, "--mode hits")
    _check_page_size(model, page_size, options.parallelism.dcp)
    paged = trace.paged(page_size)
    profile = with_bandwidth(hardware.get(options.hardware or HARDWARE), options.host_bandwidth)
    engine = _engine(options, model)
    sizes = pools.resolve(options, model, memory_of(profile), page_size, engine, trace)
    if options.mode == "timed":
        # raises if the ranks cannot hold the weights
        times.make(
            options.times or times.DEFAULT, model, profile, options.parallelism, engine.profile
        )
    check_read(options, sizes.components, bool(sizes.host[0]))
    storage = resolve_storage(options, trace)
    wants = wants_of(options.pin, options.ttl, trace, paged, options.mode)
    check_room(wants, paged, sizes.device[0], sizes.host[0])
    core = _core(options, page_size, sizes, storage)
    core = replace(core, **core_options(wants, load_components(core)))
    for place, component in enumerate(load_components(core)):
        pages = core.device_pages[place]
        if pages < component.least_pages and not sizes.shorts:
            raise CallerError(
                f"device pool of {component.name}: expected at least {component.least_pages} pages "
                f"of {page_size} tokens, which any request needs, found {pages}; enlarge it"
            )
    skipped, uncached = check_fit(trace, paged, Holding(options, page_size, sizes, engine))
    settings = Settings(
        mode=options.mode,
        check=options.check or "sampled",
        seed=options.seed or 0,
        limit=options.limit,
        model=model,
        hardware=profile,
        parallelism=options.parallelism,
        times=options.times or times.DEFAULT,
        host_bandwidth=options.host_bandwidth or Bandwidth(Fraction(1)),
        speed=options.speed or Fraction(1),
        spread=bool(options.spread or (isinstance(trace, LoadedTrace) and trace.spaced)),
        core=core,
        engine=engine,
        pools=sizes,
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
        fleet=resolve_fleet(options, sizes.components),
        wants=wants,
        given=options.head,
    )
    return settings, paged


def _core(
    options: ReplayOptions, page_size: int, sizes: Pools, storage: StorageSettings | None
) -> Config:
    fetched = options.prefetch_threshold
    stored: dict[str, Any] = {}
    if storage is not None:
        stored = {
            "storage": True,
            "prefetch_policy": storage.policy,
            "prefetch_threshold_tokens": PREFETCH_THRESHOLD_TOKENS if fetched is None else fetched,
        }
    return Config(
        page_size=page_size,
        device_pages=sizes.device,
        host_pages=sizes.host,
        components=sizes.components,
        write_policy=options.write_policy or WRITE_POLICY,
        eviction_policy=options.eviction,
        exchange_pages=sizes.exchange,
        passes=options.pp if options.mode == "timed" else 1,
        settings=settings_for(
            sizes.components,
            Shape(sizes.window, sizes.interval),
        ),
        **stored,
    )


def _engine(options: ReplayOptions, model: ModelDescription) -> EngineOptions:
    """The settings of the engine: what was given, and the engine's own defaults."""
    ranks = options.parallelism
    named = options.engine or engine_profiles.DEFAULT
    profile = engine_profiles.get(named)
    if not engine_profiles.is_path(named):  # a user's own says what it means
        profile = fitted.engine(profile, options.hardware or HARDWARE, model.name)
    engine = engine_options(profile, ranks.attention_dp, options.token_budget, options.max_running)
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


def load_components(core: Config) -> list[Component]:
    """The components of a core, in order."""
    return [registry.load(registry.COMPONENTS, name).component(core) for name in core.components]


def with_bandwidth(profile: HardwareProfile, wanted: Bandwidth | None) -> HardwareProfile:
    """The profile with this host link; itself if none was asked for."""
    if wanted is None:
        return profile
    if wanted.bytes_per_s:
        # the user states the bandwidth that copies reach, not a peak
        return replace(profile, link_bytes_per_s=wanted.bytes_per_s, link_permille=1000, curves={})
    return hardware.scaled_host_bandwidth(profile, *wanted.factor.as_integer_ratio())
