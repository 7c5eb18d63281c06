"""Figures that need no replay of a server, with what the simulator's parts predict for them.

lines     decode times over context that a source publishes as a straight line; see predicting
traces    hit rates over a public trace: LRU over its blocks, in the order of the requests, each
          of which hits the longest prefix of blocks that is resident
kernels   times of one product, attention or all-reduce, from the roofline, which alone is made
          of kernels
copies    rates of the simulated link between host and device; copies of the engines' own
          kernels (by SM) depend on how rows lie in memory and are shown without a judgement
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from hicache.devices.base import Direction
from sim.clock import Clock
from sim.device.link import Link
from sim.fitted import factors as fitted
from sim.fitted.factors import Factor
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.physics import single
from sim.physics.constants import RooflineConstants, defaults, family

from .choosing import trace_folder
from .figures import COPY, HITS, KERNEL, TPOT, Figure
from .rows import Row
from .setup import accelerator

_FIELD = re.compile(r"itl_ms_at_(\d+)k")
# 32k is 32,768 tokens in the source's own fit, and 125k is 125,000
_EXACT = {1: 1024, 32: 32_768}
_MS = 1e-3


def is_line(row: Row) -> bool:
    return any(_FIELD.fullmatch(name) for name in row.metrics)


def line_figures(row: Row) -> Iterator[tuple[Figure, int]]:
    """Each point of the line in seconds, and its context in tokens."""
    for name, value in row.metrics.items():
        if found := _FIELD.fullmatch(name):
            thousands = int(found[1])
            context = _EXACT.get(thousands, 1000 * thousands)
            yield Figure(name, TPOT, "itl", "mean", value * _MS, judged=True), context


_TRACE = "prefix-cache hit rate over a public trace"
_HIT_RATES = ("hit_rate_reproduced", "cache_ratio")


def is_trace(row: Row) -> bool:
    return row.kind == _TRACE


def trace_file(row: Row) -> Path | None:
    """The file of the row's trace; None where it is not."""
    text = str(row.workload.get("trace", ""))
    name = re.match(r"[\w.-]+\.jsonl", text)
    if not name:
        return None
    folder = trace_folder()
    plain = name[0].replace("_trace.jsonl", ".jsonl")
    for path in (folder / name[0], folder / f"mooncake_{plain}"):
        if path.is_file():
            return path
    return None


def trace_figures(row: Row) -> list[tuple[Figure, float]]:
    """The published hit rate and the one of the trace."""
    path = trace_file(row)
    assert path is not None, "the rules leave out rows without their trace"
    text = str(row.limits.get("capacity_blocks"))
    capacity = int(text) if text.isdigit() else 0
    rate = hit_rate(path, capacity)
    return [
        (Figure(name, HITS, name, "", row.metrics[name], judged=name == _HIT_RATES[0]), rate)
        for name in _HIT_RATES
        if name in row.metrics
    ]


def hit_rate(path: Path, capacity: int) -> float:
    """Hit blocks / blocks of a trace with one JSON object a line. capacity: blocks; 0: no limit."""
    kept: OrderedDict[int, None] = OrderedDict()
    hit = total = 0
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            blocks = json.loads(line)["hash_ids"]
            total += len(blocks)
            resident = True
            for block in blocks:
                resident = resident and block in kept
                hit += resident
            for block in blocks:
                kept[block] = None
                kept.move_to_end(block)
            while capacity and len(kept) > capacity:
                kept.popitem(last=False)
    return hit / total if total else 0.0


KERNELS = "kernel"
KERNEL_TIMES = "roofline"
_MS, _US, _NS = 1e-3, 1e-6, 1e-9
_ELEMENT_BYTES = 2
_HEADS = 32, 8, 128  # of the rows' attention: heads, those of keys and values, elements of each


def is_kernel(row: Row) -> bool:
    return row.kind.startswith(KERNELS)


def kernel_figures(
    row: Row, given: tuple[Factor, ...] | None
) -> Iterator[tuple[Figure, float | None]]:
    """Each published time of a kernel in seconds, and the prediction; None where there is none.
    given: the factors on the constants; None for those of this project."""
    machine = hardware.get(accelerator(row))
    generation = family(machine)
    # of an accelerator alone: no engine or model
    constants = fitted.roofline(defaults(generation), generation, machine.name, None, "", given)
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


COPIES = "host-device copy"
_BYTES = 1 << 30
_GB = 1e9
_TO_DEVICE, _TO_HOST = (Direction.HOST_TO_DEVICE,), (Direction.DEVICE_TO_HOST,)
# Which directions move at once, and whether the copy engines do it.
_FIGURES: dict[str, tuple[tuple[Direction, ...], bool]] = {
    "single_dir_GBps": (_TO_DEVICE, True),
    "both_dir_dma_GBps": (_TO_DEVICE + _TO_HOST, True),
    "both_dir_kernel_GBps": (_TO_DEVICE + _TO_HOST, False),
    "peak_GBps": (_TO_DEVICE, True),
    "h2d_GBps": (_TO_DEVICE, True),
    "d2h_GBps": (_TO_HOST, True),
    "h2d_ce_GBps": (_TO_DEVICE, True),
    "d2h_ce_GBps": (_TO_HOST, True),
    "ce_ceiling_h2d_GBps": (_TO_DEVICE, True),
    "ce_ceiling_d2h_GBps": (_TO_HOST, True),
    "h2d_sm_GBps": (_TO_DEVICE, False),
    "d2h_sm_GBps": (_TO_HOST, False),
    "h2d_sm_512MiB_GBps": (_TO_DEVICE, False),
    "h2d_sm_10GiB_GBps": (_TO_DEVICE, False),
    "register_kernel_GBps": (_TO_DEVICE, False),
    "tma_kernel_GBps": (_TO_DEVICE, False),
    "lf_pf_GBps": (_TO_DEVICE, False),
    "lf_lf_GBps": (_TO_DEVICE, False),
}


def is_copy(row: Row) -> bool:
    return row.kind == COPIES


def copy_figures(row: Row) -> Iterator[tuple[Figure, float]]:
    """Each published rate of a host link, in bytes per second, and the prediction."""
    machine = hardware.get(accelerator(row))
    for name, value in row.metrics.items():
        if name in _FIGURES and isinstance(value, int | float):
            directions, engines = _FIGURES[name]
            figure = Figure(name, COPY, name, "", value * _GB, judged=engines)
            yield figure, _copied(machine, directions)


def is_of_a_host(row: Row) -> bool:
    """Whether the row has a rate of the link between host and device."""
    return any(name in _FIGURES for name in row.metrics)


def _copied(machine: HardwareProfile, directions: tuple[Direction, ...]) -> float:
    """Bytes per second of long copies in these directions at once, together."""
    clock = Clock()
    link = Link(
        clock,
        machine.reached_link_bytes_per_s,
        machine.measured_shared_bytes_per_s,
        machine.copy_latency_ns,
        machine.curves,
    )
    for direction in directions:
        link.send(direction, _BYTES, [lambda: None])
    while clock.next_ns() >= 0:
        clock.step()
    return len(directions) * _BYTES / (clock.now_ns / 1e9)
