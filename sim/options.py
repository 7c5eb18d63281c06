"""Settings of a simulated run and of a fleet."""

from dataclasses import dataclass, field
from fractions import Fraction

from .device.simulated import FaultRule, no_faults
from .engine_profiles import PROFILE, EngineProfile
from .times.base import DEFAULT, Parallelism


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """checks: "off" keeps no bytes and detects no hazards; times and decisions stay.

    seed    seed of all random draws. parallelism: how ranks share the model.
    times   time model of the passes: name of a file in sim/times.
    speed   the trace's times are divided by this: arrivals, and delays after the end of a request.
    lag_ns  the host sees the end of a transfer at most this much late.
    faults  decides which copies fail, from the number in order of issue and the direction.
    concurrency  requests in flight; 0 for arrivals at their times (see arrivals).
    """

    checks: str = "off"
    seed: int = 0
    parallelism: Parallelism = field(default_factory=Parallelism)
    times: str = DEFAULT
    lag_ns: int = 5_000
    faults: FaultRule = no_faults
    speed: Fraction = Fraction(1)
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """token_budget   tokens of one pass: decoding sequences first, then prefill chunks.
    max_running    maximum number of admitted sequences.
    most_chunk     tokens of one prompt in a pass; 0 for as many as the budget. With attention data
                   parallelism a prompt is computed on one rank, and all ranks share the budget.
    profile        how the engine composes passes, and the time of its host. Its own token_budget
                   and max_running are not read here.
    order          admission order: one of sim/schedulers.
    window         waiting requests whose cached prefix an order may compare.
    growth_tokens  while decoding, pages are requested for this many tokens at a time.
    layer_groups   parts of a load; a pass waits for a part just before it needs it.
    fast_forward   combine decode steps between which nothing can happen into one.
    """

    token_budget: int = 8192
    max_running: int = 256
    most_chunk: int = 0
    profile: EngineProfile = PROFILE
    order: str = "fcfs"
    window: int = 32
    growth_tokens: int = 64
    layer_groups: int = 4
    fast_forward: bool = True


def engine_options(
    profile: EngineProfile,
    attention_dp: int = 1,
    token_budget: int | None = None,
    max_running: int | None = None,
) -> EngineOptions:
    """The options of an engine with this profile. attention_dp: groups of ranks that attend to
    requests of their own. The two limits are those that the engine's own options would set: of one
    group, where the profile says so, and otherwise of all together."""
    budget, running = token_budget or profile.token_budget, max_running or profile.max_running
    if attention_dp == 1:
        return EngineOptions(budget, running, profile=profile)
    if profile.rank_limits:
        limits = (budget * attention_dp, running * attention_dp, budget)
    else:
        limits = (budget, running, max(1, budget // attention_dp))
    return EngineOptions(*limits, profile=profile)


ROUTER = "round_robin"


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """name            one of sim/routers.
    overlap_weight  how much a token to compute counts against a token that is held (prefix-aware).
    delay_ns        KV events reach the router this much later.
    """

    name: str = ROUTER
    overlap_weight: Fraction = Fraction(1)
    delay_ns: int = 0


@dataclass(frozen=True, slots=True)
class KvLinkOptions:
    """The network between prefill and decode replicas. bytes_per_s: out of each prefill replica and
    into each decode replica, of all its ranks. latency_ns: before the first byte of a transfer."""

    bytes_per_s: int = 50_000_000_000
    latency_ns: int = 5_000


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """replicas: those that prefill, and decode too where `decode` is 0. decode: replicas that only
    decode; then requests are prefilled on one of `replicas` and their KV moves over the link."""

    replicas: int = 1
    decode: int = 0
    router: RouterOptions = RouterOptions()
    link: KvLinkOptions = KvLinkOptions()

    @property
    def members(self) -> int:
        return self.replicas + self.decode
