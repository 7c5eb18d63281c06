"""The interface of a time model: the duration of each forward pass of one model on given ranks.

A module of this folder defines `times(model, hardware, parallelism, engine)`, which returns a
`TimeModel`. Does not handle streams, copies or queues; an engine overlaps `layer_ns` with loads
(see sim/engine).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from hicache import registry
from hicache.core.errors import CallerError
from hicache.models import WEIGHT_BITS, ModelDescription

from ..engine_profiles.base import EngineProfile
from ..hardware.profile import HardwareProfile

DEFAULT = "roofline"
MEASURED = "measured"  # where a profile has passes of an engine
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
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            found = getattr(self, field.name)
            if found < 1:
                raise CallerError(f"{field.name}: expected at least 1, found {found}")
            if field.name in ("ep", "attention_dp") and self.tp % found:
                raise CallerError(
                    f"{field.name}: expected a divisor of {self.tp} ranks, found {found}"
                )

    @property
    def ranks(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.pp

    @property
    def attention_tp(self) -> int:
        """Ranks that share the attention heads, and so the cached rows, of one request."""
        return self.tp // self.attention_dp


class LayerTimes(Protocol):
    """Durations of a pass by layers. Nothing to compute takes 0."""

    layers: int

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        """Nanoseconds of one layer; `layers` of these and `overhead_ns` make `step_ns`.

        chunks: (start, end) token ranges of prefill; tokens before start are cached. decoding:
        number of sequences that generate one token. context: sum of the tokens that they attend to.
        """

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """Nanoseconds of a pass outside its layers. Each chunk samples as one sequence."""


class TimeModel(LayerTimes, Protocol):
    """Durations of one model. More work never takes less time. label: what is behind the times, in
    one line for reports."""

    label: str

    def step_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        """Nanoseconds of a pass over prefill chunks and decoding sequences."""


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
    cannot hold the weights.
    """
    parallelism = parallelism or Parallelism()
    check_heads(model, parallelism)
    check_experts(model, parallelism)
    check_weights(model, hardware, parallelism)
    try:
        entry = registry.load(registry.TIMES, name)
    except ImportError as error:
        raise registry.uninstalled(registry.TIMES, name, error) from error
    made: TimeModel = entry.times(model, hardware, parallelism, engine)
    return made


def check_heads(model: ModelDescription, parallelism: Parallelism) -> None:
    """Raises CallerError if the ranks cannot share the attention heads."""
    tp = parallelism.attention_tp
    if model.attention_heads % tp:
        raise CallerError(
            f"tp: expected a divisor of {model.attention_heads} attention heads, found {tp}"
        )


def check_experts(model: ModelDescription, parallelism: Parallelism) -> None:
    """Raises CallerError if the routed experts cannot be spread over the ranks."""
    if parallelism.ep == 1:
        return
    if not model.experts:
        raise CallerError(
            f"ep: expected 1, because {model.name} has no routed experts, found {parallelism.ep}"
        )
    if model.experts % parallelism.ep:
        raise CallerError(
            f"ep: expected a divisor of the {model.experts} routed experts of {model.name}, found "
            f"{parallelism.ep}"
        )


def rank_weight_bytes(model: ModelDescription, parallelism: Parallelism) -> int:
    """Bytes of the weights on each rank. Groups of ranks that attend to requests of their own each
    have the weights of attention."""
    groups = parallelism.attention_dp - 1
    bits = sum(
        one.layers * one.parameters * WEIGHT_BITS[one.dtype]
        for one in model.matrices
        if one.part == "attention" and groups
    )
    return (model.weight_bytes + int(groups * bits) // 8) // parallelism.ranks


def check_weights(
    model: ModelDescription, hardware: HardwareProfile, parallelism: Parallelism
) -> None:
    """Raises CallerError if the weights and one token do not fit the memory of the ranks."""
    ranks, weights = parallelism.ranks, rank_weight_bytes(model, parallelism)
    if weights + model.bytes_per_token(parallelism.attention_tp) > hardware.hbm_bytes:
        raise CallerError(
            f"tp: expected enough ranks for the weights of {model.name}, of which each of {ranks} "
            f"holds {weights / 1e9:.1f} GB, found {hardware.hbm_bytes / 1e9:.1f} GB on each; "
            "raise tp or choose other hardware"
        )
