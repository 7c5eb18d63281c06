"""What a simulated run can be told, each setting explained beside its field. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError

from .device.simulated import FaultRule, no_faults

CHECK_LEVELS = ("off", "sampled", "every")


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """checks: off keeps no bytes and detects no hazards; it changes no time and no decision.

    seed    root of every draw. tp: ranks that share the model.
    lag_ns  the host sees the end of a transfer up to this much late.
    faults  which copies fail, by number in order of issue and direction.
    """

    checks: str = "off"
    seed: int = 0
    tp: int = 1
    lag_ns: int = 5_000
    faults: FaultRule = no_faults

    def __post_init__(self) -> None:
        if self.checks not in CHECK_LEVELS:
            raise CallerError(
                f"checks: expected one of {', '.join(CHECK_LEVELS)}, found {self.checks!r}"
            )


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """token_budget   tokens of one pass: decoding sequences first, prefill chunks fill the rest.
    max_running    sequences admitted at once.
    order          who is admitted next: name of a file in sim/schedulers.
    window         waiting requests that an order looks at that asks for the match of each.
    growth_tokens  pages for this many tokens are asked for at a time while decoding.
    layer_groups   parts that a load is cut into; a pass waits for each where it needs it.
    fast_forward   run decode steps between which nothing can happen as one.
    """

    token_budget: int = 8192
    max_running: int = 256
    order: str = "fcfs"
    window: int = 32
    growth_tokens: int = 64
    layer_groups: int = 4
    fast_forward: bool = True

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_running", "window", "growth_tokens", "layer_groups"):
            if getattr(self, name) < 1:
                raise CallerError(f"{name}: expected at least 1, found {getattr(self, name)}")
