"""A time model that is asked less often: decode steps between two exact ones are interpolated.

A closed loop of long outputs has a hundred thousand decode steps whose context grows by one token a
sequence. Their durations are a smooth function of the context, so every 64th is computed and those
between lie on the straight line. Passes with prompts are always computed. Does not compute times.
"""

from __future__ import annotations

from sim.times.base import Chunks, TimeModel

_STEPS = 64


class Smooth:
    """See the module. label: that of the model behind."""

    def __init__(self, model: TimeModel) -> None:
        self.layers, self.label = model.layers, model.label
        self._model = model
        self._decoding = self._low = self._high = -1
        self._low_ns = self._rise_ns = 0

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        return self._model.layer_ns(chunks, decoding, context)

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        return self._model.overhead_ns(chunks, decoding)

    def step_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        if chunks:
            return self._model.step_ns(chunks, decoding, context)
        if decoding != self._decoding or not self._low <= context < self._high:
            self._find(decoding, context)
        # rounded down, as integers
        return self._low_ns + self._rise_ns * (context - self._low) // (self._high - self._low)

    def _find(self, decoding: int, context: int) -> None:
        """The two exact steps around this one."""
        stretch = max(1, _STEPS * decoding)
        self._decoding = decoding
        self._low = context // stretch * stretch
        self._high = self._low + stretch
        self._low_ns = self._model.step_ns((), decoding, max(decoding, self._low))
        self._rise_ns = self._model.step_ns((), decoding, self._high) - self._low_ns
