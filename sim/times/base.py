"""The interface of a time model: the duration of each forward pass of one model on given ranks.

A module of this folder defines `times(model, hardware, parallelism, engine)`, which returns a
`TimeModel`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from hicache import registry
from hicache.core.errors import CallerError
from hicache.models import WEIGHT_BITS, ModelDescription
from hicache.models.base import ROWS

from ..engine_profiles import EngineProfile
from ..hardware import HardwareProfile

DEFAULT = "roofline"
Chunks = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How the ranks of one replica share a model.

    tp            ranks of a pipeline stage. Without the next two they share each product, and the
                  attention heads.
    pp            pipeline stages.
    ep            ranks over which the routed experts are spread whole; the ranks of a stage beyond
                  these share each expert. 1: all ranks of a stage share each expert.
    attention_dp  groups of ranks of a stage that attend to requests of their own; the ranks of a
                  group share the heads.
    dcp           ranks of a decode context parallel group: they have the same rows, and each keeps
                  those of its part of the tokens.
    shared_host   ranks that have the same rows keep them once in host memory.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    dcp: int = 1
    shared_host: bool = False

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "ep", "attention_dp", "dcp"):
            result = getattr(self, name)
            if result < 1:
                raise CallerError(f"{name}: expected at least 1, found {result}")
            if name in ("ep", "attention_dp") and self.tp % result:
                raise CallerError(f"{name}: expected a divisor of {self.tp} ranks, found {result}")

    @property
    def ranks(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.pp

    @property
    def attention_tp(self) -> int:
        """Ranks that share the attention heads, and so the cached rows, of one request."""
        return self.tp // self.attention_dp

    @property
    def among_on_host(self) -> int:
        """Ranks that divide rows which they have alike, in host memory; 0 for all of these."""
        return 0 if self.shared_host else self.dcp


class TimeModel(Protocol):
    """Durations of the passes of one model. Nothing to compute takes 0, and more work never takes
    less time. label: what is behind the times, in one line for reports."""

    layers: int
    label: str

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        """Nanoseconds of one layer.

        chunks: (start, end) token ranges of prefill; tokens before start are cached. decoding:
        number of sequences that generate one token. context: sum of the tokens that they attend to.
        """

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """Nanoseconds of a pass outside its layers. Each chunk samples as one sequence."""

    def first_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """Of `overhead_ns`, what the first stage of a pipeline computes; the last one has the rest.
        A time model without this knows no stages."""

    def send_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """Nanoseconds in which a stage hands a pass on to the next."""


def step_ns(times: TimeModel, chunks: Chunks, decoding: int, context: int) -> int:
    """Nanoseconds of a pass over prefill chunks and decoding sequences."""
    layer_ns = times.layer_ns(chunks, decoding, context)
    return times.layers * layer_ns + times.overhead_ns(chunks, decoding)


def make(
    name: str,
    model: ModelDescription,
    hardware: HardwareProfile,
    parallelism: Parallelism | None = None,
    engine: EngineProfile | None = None,
) -> TimeModel:
    """The time model with this name. engine: None for an engine that adds nothing. The time of the
    host is no part of a pass's kernels, so an engine adds it itself.

    Raises CallerError for an unknown name, for a library that is not installed, and if the ranks
    cannot share the model or hold its weights.
    """
    parallelism = parallelism or Parallelism()
    check_ranks(model, parallelism)
    check_weights(model, hardware, parallelism)
    try:
        entry = registry.load(registry.TIMES, name)
    except ImportError as error:
        raise registry.uninstalled(registry.TIMES, name, error) from error
    if parallelism.dcp > 1 and name != DEFAULT:
        raise CallerError(f"dcp: expected 1 with --times {name}; choose --times {DEFAULT}")
    made: TimeModel = entry.times(model, hardware, parallelism, engine)
    if parallelism.pp > 1 and not hasattr(made, "first_ns"):
        raise CallerError(f"pp: expected 1 with --times {name}; choose --times {DEFAULT}")
    return made


def check_ranks(model: ModelDescription, parallelism: Parallelism) -> None:
    """Raises CallerError if the ranks cannot share the model: an equal part of the query heads, an
    equal part of the heads of each pool or a copy of one, whole routed experts, and layers."""
    tp, ep, dcp, name = parallelism.attention_tp, parallelism.ep, parallelism.dcp, model.name
    cached = {pool.heads for pool in model.pools} - {1, model.attention_heads}
    alike = gcd(*(pool.copies(tp) for pool in model.pools))
    special = model.selected_tokens or any(
        pool.window or pool.kind not in ROWS for pool in model.pools
    )
    for wrong, text in (
        (
            model.attention_heads % tp or any(count % tp and tp % count for count in cached),
            f"tp: expected a divisor of the {model.attention_heads} query heads of {name} that "
            f"divides its cached heads {sorted(cached)} or is a multiple, found {tp} for a request",
        ),
        (
            ep > 1 and not model.experts,
            f"ep: expected 1, because {name} has no routed experts, found {ep}",
        ),
        (
            model.experts % ep,
            f"ep: expected a divisor of the {model.experts} routed experts of {name}, found {ep}",
        ),
        (
            dcp > 1 and special,
            f"dcp: expected 1, because {name} has more than full attention, found {dcp}",
        ),
        (
            dcp > 1 and alike % dcp,
            f"dcp: expected a divisor of {alike}, the ranks that have the same rows of {name}, "
            f"found {dcp}",
        ),
    ):
        if wrong:
            raise CallerError(text)
    model.stages(parallelism.pp)


def rank_weight_bytes(model: ModelDescription, parallelism: Parallelism) -> int:
    """Bytes of the weights on a rank of the stage that has most. Groups of ranks that attend to
    requests of their own each have the weights of attention."""
    return max(stage_weight_bytes(model, parallelism))


def stage_weight_bytes(model: ModelDescription, parallelism: Parallelism) -> list[int]:
    """Bytes of the weights on each rank, by stage. The first has the embedding, the last the output
    head; a table that serves as both is on both."""
    groups, pp = parallelism.attention_dp - 1, parallelism.pp
    bits = sum(
        item.layers * item.parameters * WEIGHT_BITS[item.dtype]
        for item in model.matrices
        if item.part == "attention" and groups
    )
    number = model.weight_bytes + int(groups * bits) // 8
    if pp == 1:
        return [number // parallelism.tp]
    of_layers, table = number - model.embeddings * model.head_bytes, model.head_bytes
    tables = [(stage == 0) + (stage == pp - 1) for stage in range(pp)]
    return [
        (of_layers * (last - first) // model.layers + count * table) // parallelism.tp
        for (first, last), count in zip(model.stage_layers(pp), tables, strict=True)
    ]


def check_weights(
    model: ModelDescription, hardware: HardwareProfile, parallelism: Parallelism
) -> None:
    """Raises CallerError if the weights and one token do not fit the memory of the ranks."""
    ranks, weights = parallelism.ranks, rank_weight_bytes(model, parallelism)
    tp = parallelism.attention_tp
    row = max(stage.bytes_per_token(tp) for stage in model.stages(parallelism.pp))
    if weights + row > hardware.hbm_bytes:
        raise CallerError(
            f"tp: {weights / 1e9:.1f} GB of {model.name} on each of {ranks} ranks, which "
            f"have {hardware.hbm_bytes / 1e9:.1f} GB; raise tp or choose other hardware"
        )
