"""The bandwidth at which loading a cached prefix takes as long as computing it again.

    bandwidth = bytes of the prefix in the cache / time to compute the prefix

The time is the one of the simulator (sim/times), of one pass with the prefix alone, without
the fixed part of a pass. A link that is slower makes hits of that length late; one that is faster
saves time with every hit. Longer prefixes take more compute for each token, so they need less.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim.hardware.profile import HardwareProfile
from sim.times import base as times
from sim.times.base import Parallelism

from .limits import digits


@dataclass(frozen=True, slots=True)
class BreakEven:
    """bytes_per_token: of the cache, all ranks. bandwidth_bytes_per_s: at which both take the same
    time, all ranks. link_bytes_per_s: what the host links reach together."""

    model: str
    hardware: str
    tp: int
    pp: int
    prefix_tokens: int
    bytes_per_token: int
    compute_s_per_token: float
    bandwidth_bytes_per_s: float
    link_bytes_per_s: float

    @property
    def pays(self) -> bool:
        """Whether loading is faster than computing again."""
        return self.link_bytes_per_s > self.bandwidth_bytes_per_s

    def sentence(self) -> str:
        even, link = self.bandwidth_bytes_per_s / 1e9, self.link_bytes_per_s / 1e9
        verb = "pays" if self.pays else "does not pay"
        ratio = link / even if self.pays else even / link
        side = "more" if self.pays else "less"
        gpus = f"{self.tp * self.pp} x {self.hardware}"
        return (
            f"Loading a prefix of {self.prefix_tokens:,} tokens of {self.model} on {gpus} takes as "
            f"long as computing it again at {digits(even)} GB/s; the host link reaches "
            f"{digits(link)} GB/s, {digits(ratio, 2)} times {side}, so loading {verb}."
        )

    def document(self) -> dict[str, object]:
        return asdict(self) | {"pays": self.pays, "sentence": self.sentence()}


def break_even(
    model: ModelDescription,
    profile: HardwareProfile,
    tp: int,
    prefix_tokens: int,
    time_model: str = times.DEFAULT,
    pp: int = 1,
) -> BreakEven:
    """time_model: name of the one whose passes these are.

    Raises CallerError for a prefix without tokens, and if the model does not fit.
    """
    if prefix_tokens < 1:
        raise CallerError(f"prefix: expected at least 1 token, found {prefix_tokens}")
    costs = times.make(time_model, model, profile, Parallelism(tp, pp))
    seconds = costs.layers * costs.layer_ns([(0, prefix_tokens)], 0, 0) / 1e9 / prefix_tokens
    each = model.bytes_per_token(tp) * tp
    return BreakEven(
        model=model.name,
        hardware=profile.name,
        tp=tp,
        pp=pp,
        prefix_tokens=prefix_tokens,
        bytes_per_token=each,
        compute_s_per_token=seconds,
        bandwidth_bytes_per_s=each / seconds,
        link_bytes_per_s=profile.reached_link_bytes_per_s * tp * pp,
    )
