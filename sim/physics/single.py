"""The time of one kernel on its own, as benchmarks of kernels measure it.

Lives here: a product, causal attention of one prompt, attention of a decode step, and a sum over
ranks. For whole passes see sim/times.
"""

from __future__ import annotations

from hicache.models.base import Matrix

from ..hardware.profile import HardwareProfile
from . import exchanges, products
from .attention import Group
from .constants import RooflineConstants
from .kernels import Work
from .products import NS


def _ns(work: Work, constants: RooflineConstants) -> float:
    return constants.kernels[work.kind].ns(work.launches, work.compute_ns, work.moved_ns)


def product_ns(
    hardware: HardwareProfile,
    constants: RooflineConstants,
    tokens: int,
    outputs: int,
    inputs: int,
    dtype: str = "bf16",
) -> float:
    """A product of tokens x inputs with inputs x outputs."""
    matrix = Matrix("one", inputs, outputs, 1, "whole", dtype=dtype)
    return _ns(products.product(matrix, hardware, 1).of(tokens), constants)


def prefill_attention_ns(
    hardware: HardwareProfile,
    constants: RooflineConstants,
    tokens: int,
    heads: int,
    kv_heads: int,
    head_elements: int,
) -> float:
    """Causal attention of one prompt, with keys and values in bf16."""
    group = _group(hardware, heads, kv_heads, head_elements)
    return _ns(group.of_prefill([(0, tokens)]), constants)


def decode_attention_ns(
    hardware: HardwareProfile,
    constants: RooflineConstants,
    sequences: int,
    context: int,
    heads: int,
    kv_heads: int,
    head_elements: int,
) -> float:
    """Attention of one decode step. context: of each sequence."""
    group = _group(hardware, heads, kv_heads, head_elements)
    return _ns(group.of_decode(sequences, sequences * context), constants)


def all_reduce_ns(
    hardware: HardwareProfile,
    constants: RooflineConstants,
    ranks: int,
    size: int,
    kind: str = "custom",
) -> float:
    """A sum of `size` bytes over ranks. kind: custom, nccl or fused."""
    moved = 2 * (ranks - 1) / ranks
    return _ns(exchanges.exchange(kind, ranks, 1, moved, hardware).of(size), constants)


def _group(hardware: HardwareProfile, heads: int, kv_heads: int, head_elements: int) -> Group:
    width = next((size for size in (64, 128) if head_elements <= size), 256)
    pair = 4 * heads * head_elements * NS / hardware.flops_per_s
    bandwidth = hardware.hbm_bytes_per_s
    return Group(
        f"prefill.{width}",
        "decode.kv",
        0,
        1,
        4 * kv_heads * head_elements * NS / bandwidth,
        pair,
        pair,
        4 * heads * head_elements * NS / bandwidth,
    )
