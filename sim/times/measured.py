"""Durations of the passes of a real engine, as `hicache calibrate --engine` measured them.

The constants are in the hardware profile (see sim/hardware/passes), for the model that was served.
"""

from __future__ import annotations

from hicache.core.errors import CallerError
from hicache.models import ModelDescription

from ..engine_profiles.base import EngineProfile
from ..hardware.passes import PassTimes, pairs_of
from ..hardware.profile import HardwareProfile
from ..physics.kernels import real
from .base import Chunks, Parallelism

SUMMARY = "passes of a real engine, from a file that `hicache calibrate --engine` wrote"


def times(
    model: ModelDescription,
    hardware: HardwareProfile,
    parallelism: Parallelism,
    engine: EngineProfile | None,
) -> Measured:
    """engine: not used. Raises CallerError where passes of this model were not measured."""
    served = hardware.served
    if served is None:
        raise CallerError(
            "times: expected --hardware with a file that hicache calibrate --engine wrote, found "
            f"{hardware.name}; measure, or take another time model"
        )
    shapes = [(one.layers, one.bytes_per_token()) for one in (served.model, model)]
    if shapes[0] != shapes[1] or parallelism.ranks > 1:
        raise CallerError(
            f"times: expected {served.model.name} on one rank, whose passes were measured, found "
            f"{model.name} on {parallelism.ranks}; take another time model, or leave out --model"
        )
    return Measured(model.layers, served.passes)


class Measured:
    """See the module. Keeps no state between calls."""

    __slots__ = ("_of", "label", "layers")

    def __init__(self, layers: int, passes: PassTimes) -> None:
        self.layers = layers
        self.label = "passes measured in an engine"
        self._of = passes

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        """See `TimeModel`."""
        filled = real(chunks)
        tokens = decoding + sum(end - start for start, end in filled)
        if not tokens:
            return 0
        of = self._of
        total = of.of_tokens(tokens) + of.pair_ns * pairs_of(filled) + of.context_ns * context
        return int(total / self.layers + 0.5)

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        """See `TimeModel`."""
        filled = real(chunks)
        if not filled and not decoding:
            return 0
        return int(self._of.pass_ns + self._of.chunk_ns * len(filled) + 0.5)

    def step_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        """See `TimeModel`."""
        layer = self.layer_ns(chunks, decoding, context)
        return self.layers * layer + self.overhead_ns(chunks, decoding)
