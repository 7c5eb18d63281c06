"""A pure roofline: a pass takes the longer of compute and memory time, in integer ns.

    step  = layers x layer + overhead                 0 if there is nothing to compute
    layer = max(compute, memory)                      of one average layer, rounded up
    compute = (2 x parameters x tokens + attention) / (tp x reached flop/s)
    attention = sum over chunks of pairs x 2 x heads x (score + value elements)
              + decode context x 2 x heads x (decode score + decode value elements)
    memory = (weights read once a step + cached rows read + states read and written)
             / reached HBM bytes/s, per rank
    overhead = fixed + output head of each sequence that samples

Sources: docs/times.md. A layer of routed experts reads at most as many experts as its tokens
choose. Not modelled: collectives between ranks, activations, the higher rate of fp8 products, the
expansion of cached latents in an MLA prefill, what an engine adds, how experts and attention are
spread over ranks, and what stages send.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hicache.models import ModelDescription

from ..engine_profiles import EngineProfile
from ..hardware import HardwareProfile
from ..physics import met, real, twice_pairs
from .base import Chunks, Parallelism

SUMMARY = "the longer of compute and memory time, with the same reached rates for every kernel"

_NS = 1_000_000_000


def times(
    model: ModelDescription,
    hardware: HardwareProfile,
    parallelism: Parallelism,
    engine: EngineProfile | None,
) -> PureRoofline:
    """engine: not used."""
    return PureRoofline(model, hardware, parallelism.tp)


class PureRoofline:
    """Durations of one model on `tp` ranks of one accelerator. Keeps no state between calls."""

    def __init__(self, model: ModelDescription, profile: HardwareProfile, tp: int = 1) -> None:
        self.layers = model.layers
        self.label = "pure roofline"
        heads = 2 * model.attention_heads
        # Work is the sum over all layers and ranks, so each duration divides by layers and ranks.
        self._linear_flops = 2 * model.layer_parameters
        self._pair_flops = heads * (model.score_elements + model.value_elements)
        self._decode_flops = heads * (model.decode_score_elements + model.decode_value_elements)
        self._windows = _layers_by_window(model)
        self._flops_per_s = profile.reached_flops_per_s * tp
        self._experts = model.experts
        self._experts_per_token = model.experts_per_token
        self._expert_bytes = model.expert_bytes
        self._weight_bytes = model.layer_bytes
        # Ranks may hold copies of a row (MLA, few heads), so a pass reads tp times a rank's bytes.
        self._rows = _rows_by_window(model, tp)
        states = [pool for pool in model.pools if pool.kind == "state" and not pool.anchor]
        self._state_bytes = 2 * tp * sum(pool.page_bytes(1, tp) for pool in states)
        self._hbm_bytes_per_s = profile.reached_hbm_bytes_per_s * tp
        self._head_flops = 2 * model.head_parameters
        self._head_bytes = model.head_bytes
        self._overhead_ns = profile.step_overhead_ns

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        """See `TimeModel`. Of one average layer."""
        filled = real(chunks)
        tokens = decoding + sum(end - start for start, end in filled)
        if not tokens:
            return 0
        flops = self._linear_flops * tokens
        for window, layers in self._windows:
            pairs = sum(twice_pairs(start, end, window) for start, end in filled)
            attended = met(context, decoding, window)
            flops += layers * (self._pair_flops * pairs // 2 + self._decode_flops * attended)
        moved = self._weight_bytes + self._state_bytes * (decoding + len(filled))
        for window, size in self._rows:
            rows = met(context, decoding, window)
            rows += sum(met(end, 1, window and end - start + window) for start, end in filled)
            moved += size * rows
        if self._experts:
            moved += self._expert_bytes * min(self._experts, self._experts_per_token * tokens)
        compute_ns = -(-flops * _NS // (self._flops_per_s * self.layers))
        memory_ns = -(-moved * _NS // (self._hbm_bytes_per_s * self.layers))
        return compute_ns if compute_ns > memory_ns else memory_ns

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """See `TimeModel`."""
        sampled = decoding + len(real(chunks))
        if not sampled:
            return 0
        compute_ns = -(-self._head_flops * sampled * _NS // self._flops_per_s)
        memory_ns = -(-self._head_bytes * _NS // self._hbm_bytes_per_s)
        return self._overhead_ns + max(compute_ns, memory_ns)

    def first_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """See `TimeModel`."""
        return self._overhead_ns if real(chunks) or decoding else 0

    def send_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """See `TimeModel`: not modelled."""
        return 0


def _layers_by_window(model: ModelDescription) -> tuple[tuple[int, int], ...]:
    """Returns (window, number of layers that attend within it); window 0 means all tokens.

    A layer with states and no rows does not attend; a layer without pools is counted as full
    attention.
    """
    result: dict[int, int] = {}
    for layer in range(model.layers):
        pools = [pool for pool in model.pools if layer in pool.layers]
        windows = [pool.window for pool in pools if pool.kind != "state"]
        if windows or not pools:
            window = 0 if 0 in windows or not windows else max(windows)
            result[window] = result.get(window, 0) + 1
    return tuple(result.items())


def _rows_by_window(model: ModelDescription, tp: int) -> tuple[tuple[int, int], ...]:
    """Returns (window, bytes per token over all ranks of the pools with this window)."""
    result: dict[int, Fraction] = {}
    for pool in model.pools:
        result[pool.window] = result.get(pool.window, Fraction(0)) + pool.token_bytes(tp)
    return tuple((window, ceil(size) * tp) for window, size in result.items() if size)
