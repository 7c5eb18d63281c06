"""The settings of a replay: all options with their defaults resolved.

Turns what the user asked for (tokens, ratios, nothing at all) into page counts and profiles, and
raises CallerError where that is impossible. Does not parse the command line; see
traces/commands/replay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from hicache.core import registry
from hicache.core.components.base import Component, Shape, residency, settings_for
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from hicache.runtime.config_document import document, settings_names
from invariants.watch import Level
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.options import EngineOptions

from ..formats.base import Paged, Trace
from ..terminal.options import Bandwidth
from . import pools
from .options import Mode, ReplayOptions
from .pools import Pools

# the share of memory that engines give to weights and cache; activations and graphs take the rest
HBM_SHARE = Fraction(9, 10)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that determines the outcome of a replay. `pools` records the rule of each size."""

    mode: Mode
    check: Level
    seed: int
    limit: int
    model: ModelDescription
    hardware: HardwareProfile
    tp: int
    host_bandwidth: Bandwidth
    speed: Fraction
    core: Config
    engine: EngineOptions
    pools: Pools

    @property
    def page_bytes(self) -> tuple[int, ...]:
        """Bytes of one page or state of each component, on each rank."""
        size, tp = self.core.page_size, self.tp
        return tuple(self.model.bytes_per_page(name, size, tp) for name in self.core.components)

    def as_options(self) -> dict[str, object]:
        """Every resolved option, by its name on the command line."""
        core, engine = self.core, self.engine
        return {
            "mode": self.mode,
            "model": self.model.name,
            "hardware": self.hardware.name,
            "tp": self.tp,
            "page_size": core.page_size,
            "device_pages": core.device_pages[0],
            "device_tokens": core.device_pages[0] * core.page_size,
            "host_pages": core.host_pages[0],
            "host_tokens": core.host_pages[0] * core.page_size,
            "components": list(core.components),
            **self._of_components(),
            "host_bandwidth": str(self.host_bandwidth),
            "write_policy": core.write_policy,
            "exclusive": bool(core.exchange_pages),
            "exchange_pages": list(core.exchange_pages),
            "eviction_policy": core.eviction_policy,
            "load_threshold": core.load_threshold_pages,
            "load_quota": core.load_quota_pages,
            "scheduler": engine.order,
            "token_budget": engine.token_budget,
            "max_running": engine.max_running,
            "check": self.check,
            "speed": float(self.speed),
            "limit": self.limit or None,
            "seed": self.seed,
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
    """The settings for this trace, and its pages. Raises CallerError where sizes do not fit."""
    paged = trace.paged(options.page_size)
    model = pools.model_of(options)
    profile = _with_bandwidth(hardware.get(options.hardware), options.host_bandwidth)
    memory = (
        int(profile.hbm_bytes * HBM_SHARE) - model.parameters * model.weight_bytes // options.tp
    )
    sizes = pools.resolve(options, model, memory, trace)
    settings = Settings(
        mode=options.mode,
        check=options.check or "sampled",
        seed=options.seed,
        limit=options.limit,
        model=model,
        hardware=profile,
        tp=options.tp,
        host_bandwidth=options.host_bandwidth,
        speed=options.speed,
        core=Config(
            page_size=options.page_size,
            device_pages=sizes.device,
            host_pages=sizes.host,
            components=sizes.components,
            write_policy=options.write_policy,
            eviction_policy=options.eviction,
            load_threshold_pages=options.load_threshold,
            load_quota_pages=options.load_quota,
            exchange_pages=sizes.exchange,
            settings=settings_for(
                sizes.components,
                Shape(sizes.window, sizes.interval, sizes.states_per_path),
            ),
        ),
        engine=EngineOptions(
            token_budget=options.token_budget,
            max_running=options.max_running,
            order=options.scheduler,
        ),
        pools=sizes,
    )
    for place, component in enumerate(load_components(settings.core)):
        pages = settings.core.device_pages[place]
        if pages < component.least_pages:
            raise CallerError(
                f"device pool of {component.name}: expected at least {component.least_pages} pages "
                f"of {options.page_size} tokens, which any request needs, found {pages}; enlarge it"
            )
    return settings, paged


def load_components(core: Config) -> list[Component]:
    """The components of a core, in order."""
    return [registry.load(registry.COMPONENTS, name).component(core) for name in core.components]


def _with_bandwidth(profile: HardwareProfile, wanted: Bandwidth) -> HardwareProfile:
    if wanted.bytes_per_s:
        # the user states the bandwidth that copies reach, not a peak
        return replace(profile, link_bytes_per_s=wanted.bytes_per_s, link_permille=1000, curves={})
    return hardware.scaled_host_bandwidth(profile, *wanted.factor.as_integer_ratio())
