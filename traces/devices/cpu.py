"""The reference device: memory of this process, copied by threads."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hicache.devices.base import DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice

from .stopwatch import Pools

_SIDE = 1024
_COPIED = 64 << 20
_REPEATS = 7
_SWITCH_S = 20e-6


def machine() -> dict[str, Any]:
    """The name and number of processors, and the versions of the software."""
    return {
        "accelerator": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def rates() -> dict[str, int]:
    """Rates of a float32 matrix product and of a large copy (bytes read plus bytes written)."""
    draw = np.random.default_rng(0)
    left, right = (draw.random((_SIDE, _SIDE), dtype=np.float32) for _ in range(2))
    source = np.ones(_COPIED, dtype=np.uint8)
    target = np.zeros_like(source)
    products = sorted(_timed_ns(lambda: left @ right) for _ in range(_REPEATS))
    copies = sorted(_timed_ns(lambda: np.copyto(target, source)) for _ in range(_REPEATS))
    return {
        "flops_per_s": 2 * _SIDE**3 * 1_000_000_000 // products[_REPEATS // 2],
        "memory_bytes_per_s": 2 * _COPIED * 1_000_000_000 // copies[_REPEATS // 2],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


@contextmanager
def make(pools: Pools, options: DeviceOptions) -> Iterator[CpuDevice]:
    """A CPU device, with a short switch interval of the interpreter.

    The threads of the device share the interpreter lock with the caller. With the default of 5 ms
    the caller could keep the lock for the length of a whole copy.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        with CpuDevice(*pools, options) as device:
            yield device
    finally:
        sys.setswitchinterval(interval)


def plain_ns(device: CpuDevice, component: str, way: Direction) -> int:
    """The time of one numpy copy of each pool, on the caller's thread."""
    sources, targets = (device.arena.pools(tier, component) for tier in way.ends)

    def copy() -> None:
        for source, target in zip(sources, targets, strict=True):
            np.copyto(target.flat, source.flat)

    return _timed_ns(copy)


def _timed_ns(work: Callable[[], object]) -> int:
    started = time.perf_counter_ns()
    work()
    return max(1, time.perf_counter_ns() - started)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
