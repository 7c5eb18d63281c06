"""Rates of copies between host and device, as the simulated link gives them.

Copies of the engines' own kernels (by SM) depend on how rows lie in memory and are shown without a
judgement; the link of a profile is that of the copy engines. Does not know pages.
"""

from __future__ import annotations

from collections.abc import Iterator

from hicache.devices.base import Direction
from sim.clock import Clock
from sim.device.link import Link
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile

from ..figures import COPY, Figure
from ..rows import Row
from ..setup import accelerator

KIND = "host-device copy"
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
    return row.kind == KIND


def figures(row: Row) -> Iterator[tuple[Figure, float]]:
    """Each published rate of a host link, in bytes per second, and the prediction."""
    machine = hardware.get(accelerator(row))
    for name, value in row.metrics.items():
        if name in _FIGURES and isinstance(value, int | float):
            directions, engines = _FIGURES[name]
            figure = Figure(name, COPY, name, "", value * _GB, judged=engines)
            yield figure, _rate(machine, directions)


def named(row: Row) -> bool:
    """Whether the row has a rate of the link between host and device."""
    return any(name in _FIGURES for name in row.metrics)


def _rate(machine: HardwareProfile, directions: tuple[Direction, ...]) -> float:
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
