"""Times of single kernels, as the time model's own parts predict them.

Only the roofline is made of kernels: it is asked for the work of one product, one attention or one
all-reduce, and for the time that its constants give that work. Does not know passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import hicache.models as models
from hicache.models import ModelDescription
from hicache.models.base import Matrix
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.physics import attention, exchanges, products
from sim.physics.constants import RooflineConstants
from sim.physics.kernels import PerToken, Work
from sim.times import base as times
from sim.times.roofline import Roofline

from .figures import KERNEL, Figure
from .rows import Row
from .setup import accelerator

KIND = "kernel"
TIMES = "roofline"
_MS, _US, _NS = 1e-3, 1e-6, 1e-9
_ELEMENT_BYTES = 2
_HEADS, _KV_HEADS = 32, 8  # of the rows' attention, with 128 elements each: that of this model
_MODEL = "llama-3.1-8b"


def is_kernel(row: Row) -> bool:
    return row.kind.startswith(KIND)


def figures(row: Row) -> Iterator[tuple[Figure, float | None]]:
    """Each published time of a kernel in seconds, and the prediction; None where there is none."""
    machine = hardware.get(accelerator(row))
    constants = _constants(machine)
    latency = row.metrics.get("latency_ms")
    if "GEMM" in row.kind and isinstance(latency, int | float):
        yield _figure("latency_ms", latency * _MS), _product(row, machine, constants)
    elif "all-reduce" in row.kind:
        for name, value in row.metrics.items():
            if found := re.fullmatch(r"us_at_(\d+)", name):
                work = _all_reduce(machine, row.gpu_count, int(found[1]))
                yield _figure(name, value * _US), _seconds(work, constants)
    elif "attention" in row.kind and isinstance(latency, int | float):
        yield _figure("latency_ms", latency * _MS), _attention(row, machine, constants)


def _figure(name: str, seconds: float) -> Figure:
    return Figure(name, KERNEL, name, "", seconds, judged=True)


def _constants(machine: HardwareProfile) -> RooflineConstants:
    """The constants that passes on this accelerator have."""
    made = times.make(TIMES, models.get(_MODEL), replace(machine, hbm_bytes=1 << 40))
    assert isinstance(made, Roofline), f"{TIMES} is made of kernels"
    return made.constants


def _seconds(work: Work, constants: RooflineConstants) -> float:
    kind, launches, compute_ns, moved_ns = work
    return constants.kernels[kind].ns(launches, compute_ns, moved_ns) * _NS


def _product(row: Row, machine: HardwareProfile, constants: RooflineConstants) -> float | None:
    found = re.search(r"m (\d+) n (\d+) k (\d+)", row.quote)
    if not found:
        return None
    tokens, outputs, inputs = (int(each) for each in found.groups())
    matrix = Matrix("product", inputs, outputs, 1, "whole", "mlp", "bf16")
    return _seconds(products.product(matrix, machine, 1).of(tokens), constants)


def _all_reduce(machine: HardwareProfile, ranks: int, elements: int) -> Work:
    moved = 2 * (ranks - 1) / ranks * elements * _ELEMENT_BYTES
    made: PerToken = exchanges.exchange("custom", ranks, 1, moved, machine)
    return made.of(1)


def _attention(row: Row, machine: HardwareProfile, constants: RooflineConstants) -> float | None:
    """One layer of a model with the heads of the rows."""
    (group,) = attention.groups(_one_layer(), machine, 1)
    if found := re.search(r"isl (\d+)", row.quote):
        return _seconds(group.of_prefill([(0, int(found[1]))]), constants)
    if found := re.search(r"batch (\d+), context (\d+)", row.quote):
        batch, context = (int(each) for each in found.groups())
        return _seconds(group.of_decode(batch, batch * context), constants)
    return None


def _one_layer() -> ModelDescription:
    model = models.get(_MODEL)
    assert (model.attention_heads, model.kv_heads) == (_HEADS, _KV_HEADS)
    pools = tuple(replace(pool, layers=(0,)) for pool in model.pools)
    return replace(model, layers=1, pools=pools, matrices=())
