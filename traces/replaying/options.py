"""The options of `hicache replay` as one frozen record, and the names that their values may have.

Does not parse the command line (see traces/commands/replay) or fill in what was not given (see
settings and pools).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from hicache.core.components.base import known
from invariants.watch import Level

from ..terminal.options import Bandwidth, OptionRecord, Unbounded

Mode = Literal["timed", "hits"]
MODES: tuple[Mode, ...] = get_args(Mode)
CHECKS: tuple[Level, ...] = get_args(Level)
COMPONENTS = known()
BACKBONE = COMPONENTS[0]
MODEL = "llama-3.1-8b"  # if no model is given


@dataclass(frozen=True, slots=True)
class ReplayOptions(OptionRecord):
    """None means not given: the value then follows from the model, the hardware or the trace."""

    trace: str | None
    format: str
    mode: Mode
    limit: int
    seed: int
    check: Level | None
    json: str | None
    requests: str | None
    why: int | None

    page_size: int
    device_tokens: int | None
    device_pages: int | Unbounded | None
    host_ratio: Fraction | None
    host_pages: int | None
    host_bytes: int | None
    write_policy: str
    exclusive: bool
    eviction: str
    compare_eviction: str | None
    load_threshold: int
    load_quota: int

    components: tuple[str, ...] | None
    swa_window: int | None
    swa_tokens: int | None
    mamba_states: int | None
    mamba_interval: int | None
    mamba_states_per_path: int

    model: str | None
    hardware: str
    tp: int
    host_bandwidth: Bandwidth
    scheduler: str
    token_budget: int
    max_running: int
    speed: Fraction
