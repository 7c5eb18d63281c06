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
from sim.times.base import Parallelism

from ..loads.base import Arrivals
from ..terminal.options import Bandwidth, OptionRecord, Unbounded
from .load.options import ThinkTime
from .load.slo import Slo
from .wants import Pins

Mode = Literal["timed", "hits"]
MODES: tuple[Mode, ...] = get_args(Mode)
CHECKS: tuple[Level, ...] = get_args(Level)
COMPONENTS = known()
BACKBONE = COMPONENTS[0]
# What an option means that was not given.
MODEL = "llama-3.1-8b"
HARDWARE = "h100"
WRITE_POLICY = "write_through"
LOAD_THRESHOLD = 1
PREFETCH_THRESHOLD_TOKENS = 256


@dataclass(frozen=True, slots=True)
class ReplayOptions(OptionRecord):
    """None means not given: the value is then a default, or follows from the model, the hardware or
    the trace. So an option that the run would ignore can be told from its default (see unread).

    storage_bandwidth: bytes per second of reads and of writes. storage_latency: nanoseconds.
    prefetch_limit: nanoseconds, in all and for each token. request_rate: requests per second.
    router_delay, kv_link_latency: nanoseconds. kv_link: bytes per second.
    """

    trace: str | None
    format: str | None
    block_size: int | None
    tokenizer: str | None
    stream: bool
    mode: Mode
    limit: int
    sample: Fraction | None
    skip_too_large: bool
    seed: int | None
    check: Level | None
    json: str | None
    requests: str | None
    html: str | None
    plot: bool
    why: int | None

    page_size: int | None
    device_tokens: int | None
    device_pages: int | Unbounded | None
    host_ratio: Fraction | None
    host_pages: int | None
    host_bytes: int | None
    write_policy: str | None
    exclusive: bool
    eviction: str
    compare_eviction: str | None
    recompute_cost: tuple[int, int] | None
    ttl: int | None
    pin: Pins | None
    load_threshold: int | None
    load_quota: int | None
    load_groups: int | None

    components: tuple[str, ...] | None
    swa_window: int | None
    swa_tokens: int | None
    mamba_states: int | None
    mamba_interval: int | None
    mamba_states_per_path: int | None

    storage: str | None
    storage_size: int | None
    storage_bandwidth: tuple[int, int] | None
    storage_latency: int | None
    prefetch: str | None
    prefetch_threshold: int | None
    prefetch_budget: int | None
    prefetch_limit: tuple[int, int] | None
    flush_host_every_round: bool | None
    flush_device_every_round: bool | None

    replicas: int | None
    prefill_replicas: int | None
    decode_replicas: int | None
    router: str | None
    router_overlap_weight: Fraction | None
    router_delay: int | None
    router_index_pages: int | None
    kv_link: int | None
    kv_link_latency: int | None

    model: str | None
    weight_dtype: str | None
    kv_dtype: str | None
    hardware: str | None
    tp: int
    ep: int | None
    attention_dp: int | None
    engine: str | None
    times: str | None
    host_bandwidth: Bandwidth | None
    scheduler: str | None
    token_budget: int | None
    max_running: int | None
    speed: Fraction | None
    spread: bool | None

    slo: Slo | None
    arrivals: Arrivals | None
    request_rate: Fraction | None
    concurrency: int | None
    closed_loop: bool | None
    think_time: ThinkTime | None

    @property
    def parallelism(self) -> Parallelism:
        """How the ranks share the model. Raises CallerError for numbers that contradict."""
        return Parallelism(self.tp, 1, self.ep or 1, self.attention_dp or 1)
