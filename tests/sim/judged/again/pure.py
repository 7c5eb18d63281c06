"""The duration of a forward pass, computed a second time: query by query, in exact fractions.

Lives here: the roofline formula of docs/times.md as plain sums over layers, queries and pools. Only
for small batches. Does not use sim/times/pure_roofline, with which it is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from hicache.models import ModelDescription
from sim.hardware.profile import HardwareProfile

_NS = 10**9
Chunks = Sequence[tuple[int, int]]


class PlainCosts:
    """Durations of one model on `tp` ranks. The methods are those of sim/times."""

    def __init__(self, model: ModelDescription, profile: HardwareProfile, tp: int = 1) -> None:
        self.layers = model.layers
        self._model = model
        self._profile = profile
        self._tp = tp
        self._flops_per_s = profile.flops_per_s * profile.compute_permille // 1000 * tp
        self._bytes_per_s = profile.hbm_bytes_per_s * profile.hbm_permille // 1000 * tp

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        """Nanoseconds of one average layer."""
        real = [chunk for chunk in chunks if chunk[1] > chunk[0]]
        tokens = decoding + sum(end - start for start, end in real)
        if not tokens:
            return 0
        flops = 2 * self._model.layer_parameters * tokens + self._attention(real, decoding, context)
        moved = self._weights(tokens) + self._rows(real, decoding, context)
        compute = Fraction(flops * _NS, self._flops_per_s * self.layers)
        memory = Fraction(moved * _NS, self._bytes_per_s * self.layers)
        return ceil(max(compute, memory))

    def _attention(self, chunks: Chunks, decoding: int, context: int) -> int:
        """Operations of attention in all layers: each query meets the tokens up to itself."""
        model, flops = self._model, 0
        heads = 2 * model.attention_heads
        for layer in range(model.layers):
            pools = [pool for pool in model.pools if layer in pool.layers]
            if pools and all(pool.kind == "state" for pool in pools):
                continue  # a recurrence does not attend
            windows = [pool.window for pool in pools if pool.kind != "state"]
            window = 0 if not windows or 0 in windows else max(windows)
            most = window or 1 << 60
            pairs = sum(
                min(query + 1, most) for start, end in chunks for query in range(start, end)
            )
            met = min(context, decoding * most)
            flops += heads * pairs * (model.score_elements + model.value_elements)
            flops += heads * met * (model.decode_score_elements + model.decode_value_elements)
        return flops

    def _weights(self, tokens: int) -> int:
        """Bytes of weights that all ranks read, with the experts that the tokens choose."""
        model = self._model
        chosen = min(model.experts, model.experts_per_token * tokens)
        return model.layer_bytes + chosen * model.expert_bytes

    def _rows(self, chunks: Chunks, decoding: int, context: int) -> int:
        """Bytes of cached rows and states that all ranks read and write."""
        moved, tp = 0, self._tp
        by_window: dict[int, Fraction] = {}
        for pool in self._model.pools:
            if pool.kind == "state" and not pool.anchor:
                moved += 2 * tp * pool.page_bytes(1, tp) * (decoding + len(chunks))
            size = by_window.get(pool.window, Fraction(0))
            by_window[pool.window] = size + pool.token_bytes(tp)
        for window, size in by_window.items():
            most = window or 1 << 60
            rows = min(context, decoding * most)
            rows += sum(min(end, end - start + most) for start, end in chunks)
            moved += ceil(size) * tp * rows
        return moved

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        """Nanoseconds of a pass outside its layers: the output head of all that sample, once."""
        sampled = decoding + sum(end > start for start, end in chunks)
        if not sampled:
            return 0
        model = self._model
        compute = Fraction(2 * model.head_parameters * sampled * _NS, self._flops_per_s)
        memory = Fraction(model.head_bytes * _NS, self._bytes_per_s)
        return self._profile.step_overhead_ns + ceil(max(compute, memory))
