"""Times of single kernels, as the time model's own parts predict them.

Only the roofline is made of kernels: it is asked for the work of one product, one attention or one
all-reduce, and for the time that its constants give that work. Does not know passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import hicache.models as models
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.physics import single
from sim.physics.constants import RooflineConstants
from sim.times import base as times
from sim.times.roofline import Roofline

from ..figures import KERNEL, Figure
from ..rows import Row
from ..setup import accelerator

KIND = "kernel"
TIMES = "roofline"
_MS, _US, _NS = 1e-3, 1e-6, 1e-9
_ELEMENT_BYTES = 2
_HEADS = 32, 8, 128  # of the rows' attention: heads, those of keys and values, elements of each
_MODEL = "llama-3.1-8b"  # any one: constants are those of the accelerator


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
                size = _ELEMENT_BYTES * int(found[1])
                took = single.all_reduce_ns(machine, constants, row.gpu_count, size)
                yield _figure(name, value * _US), took * _NS
    elif "attention" in row.kind and isinstance(latency, int | float):
        yield _figure("latency_ms", latency * _MS), _attention(row, machine, constants)


def _figure(name: str, seconds: float) -> Figure:
    return Figure(name, KERNEL, name, "", seconds, judged=True)


def _constants(machine: HardwareProfile) -> RooflineConstants:
    """The constants that passes on this accelerator have."""
    made = times.make(TIMES, models.get(_MODEL), replace(machine, hbm_bytes=1 << 40))
    assert isinstance(made, Roofline), f"{TIMES} is made of kernels"
    return made.constants


def _product(row: Row, machine: HardwareProfile, constants: RooflineConstants) -> float | None:
    found = re.search(r"m (\d+) n (\d+) k (\d+)", row.quote)
    if not found:
        return None
    tokens, outputs, inputs = (int(each) for each in found.groups())
    return single.product_ns(machine, constants, tokens, outputs, inputs) * _NS


def _attention(row: Row, machine: HardwareProfile, constants: RooflineConstants) -> float | None:
    if found := re.search(r"isl (\d+)", row.quote):
        tokens = int(found[1])
        return single.prefill_attention_ns(machine, constants, tokens, *_HEADS) * _NS
    if found := re.search(r"batch (\d+), context (\d+)", row.quote):
        batch, context = (int(each) for each in found.groups())
        return single.decode_attention_ns(machine, constants, batch, context, *_HEADS) * _NS
    return None
