"""Option values, resolved: what a replay runs with once every default was filled in.

Lives here: turning what the user asked for (tokens, ratios, nothing at all) into page counts and
profiles, and the messages where it cannot be done. Must not live here: argparse (traces/cli.py).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from fractions import Fraction

import hicache.models as models
from hicache import registry
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.memory.plan import plan_pools
from hicache.models import ModelDescription
from sim import hardware
from sim.engine import EngineOptions
from sim.hardware import HardwareProfile

from .formats.base import Paged, Trace
from .options import UNBOUNDED, Bandwidth

MODES = ("timed", "hits")
CHECKS = ("every", "sampled", "off")
POLICIES = "hicache.core.policies"

# what serving engines give to weights and cache together; the rest is for activations and graphs
HBM_SHARE = Fraction(9, 10)
HOST_RATIO = {"timed": Fraction(2), "hits": Fraction(0)}
# what a replay moves; pages of other components would be left out of its bytes
COMPONENTS = ("full",)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides a replay's outcome. `device_rule` says where a size came from."""

    mode: str
    check: str
    seed: int
    limit: int
    model: ModelDescription
    hardware: HardwareProfile
    tp: int
    host_bandwidth: Bandwidth
    core: Config
    engine: EngineOptions
    device_rule: str
    host_rule: str

    @property
    def bytes_per_page(self) -> int:
        """Of one page, on each of the ranks."""
        return self.model.bytes_per_page(self.core.components[0], self.core.page_size, self.tp)

    def as_options(self) -> dict[str, object]:
        """Every option as resolved, by its name on the command line."""
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
            "host_bandwidth": str(self.host_bandwidth),
            "write_policy": core.write_policy,
            "eviction_policy": core.eviction_policy,
            "load_threshold": core.load_threshold_pages,
            "load_quota": core.load_quota_pages,
            "scheduler": engine.order,
            "token_budget": engine.token_budget,
            "max_running": engine.max_running,
            "check": self.check,
            "limit": self.limit,
            "seed": self.seed,
        }


def write_policies() -> list[str]:
    """Names of the write policies, as their authors spell them (with underscores)."""
    return [
        name.replace("-", "_")
        for name in registry.names(POLICIES)
        if hasattr(registry.load(POLICIES, name), "writes")
    ]


def resolve(options: argparse.Namespace, trace: Trace) -> tuple[Settings, Paged]:
    """Settings for this trace, and its pages. Raises CallerError where sizes do not fit."""
    paged = trace.paged(options.page_size)
    model = models.get(options.model)
    if model.components != COMPONENTS:
        raise CallerError(
            f"--model: expected one whose pools follow {', '.join(COMPONENTS)} alone, found "
            f"{', '.join(model.components)} of {model.name}; `hicache models` lists them"
        )
    profile = _with_bandwidth(hardware.get(options.hardware), options.host_bandwidth)
    device, device_rule = _device_pages(options, model, profile, trace)
    host, host_rule = _host_pages(options, model, device)
    settings = Settings(
        mode=options.mode,
        check=options.check,
        seed=options.seed,
        limit=options.limit,
        model=model,
        hardware=profile,
        tp=options.tp,
        host_bandwidth=options.host_bandwidth,
        core=Config(
            page_size=options.page_size,
            device_pages=(device,),
            host_pages=(host,),
            write_policy=options.write_policy.replace("-", "_"),
            load_threshold_pages=options.load_threshold,
            load_quota_pages=options.load_quota,
        ),
        engine=EngineOptions(
            token_budget=options.token_budget,
            max_running=options.max_running,
            order=options.scheduler,
        ),
        device_rule=device_rule,
        host_rule=host_rule,
    )
    return settings, paged


def _with_bandwidth(profile: HardwareProfile, wanted: Bandwidth) -> HardwareProfile:
    if wanted.bytes_per_s:
        # what the user states is what a copy reaches, not a peak
        return replace(profile, link_bytes_per_s=wanted.bytes_per_s, link_permille=1000, curves={})
    return hardware.scaled_host_bandwidth(profile, *wanted.factor.as_integer_ratio())


def _device_pages(
    options: argparse.Namespace, model: ModelDescription, profile: HardwareProfile, trace: Trace
) -> tuple[int, str]:
    size = options.page_size
    memory = int(profile.hbm_bytes * HBM_SHARE)
    weights = model.parameters * model.weight_bytes // options.tp
    fitting = (memory - weights) // model.bytes_per_page("full", size, options.tp)
    if options.device_pages == UNBOUNDED:
        pages = sum(-(-(job.input_length + job.output_length) // size) for job in trace.jobs)
        return pages, "unbounded: room for the whole trace"
    given = options.device_pages
    if options.device_tokens is not None:
        given = options.device_tokens // size
        if not given:
            raise CallerError(
                f"--device-tokens: expected at least one page of {size} tokens, found "
                f"{options.device_tokens}"
            )
    if given is not None:
        return (
            given,
            "as given" if given <= fitting else f"as given; {profile.name} fits {fitting:,}",
        )
    if fitting < 1:
        raise CallerError(
            f"--model {model.name}: expected weights below {memory / 1e9:.0f} GB (90% of one "
            f"{profile.name}), found {weights / 1e9:.0f} GB a rank; use a larger --tp or give "
            "--device-tokens"
        )
    return fitting, f"90% of {profile.name} less the weights"


def _host_pages(
    options: argparse.Namespace, model: ModelDescription, device: int
) -> tuple[int, str]:
    if options.host_pages is not None:
        return options.host_pages, "as given"
    if options.host_bytes is not None:
        planned = plan_pools(
            model,
            options.page_size,
            {COMPONENTS[0]: device},
            total_bytes=options.host_bytes,
            tp=options.tp,
        )
        return planned.pages[
            COMPONENTS[0]
        ], f"{options.host_bytes / 1e9:g} GB on {options.tp} ranks"
    ratio = options.host_ratio
    if ratio is None:
        ratio = HOST_RATIO[options.mode]
    if not ratio:
        return 0, "none"
    # at least one page more than the device, or a ratio of 1 could not keep what was evicted
    return max(int(device * ratio), device + 1), f"{float(ratio):g} x device"
