"""One CUDA accelerator and its pinned host memory, through torch."""

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from statistics import median_high
from typing import Any

import torch

from hicache.core.errors import CallerError
from hicache.devices.base import DeviceOptions
from hicache.devices.cuda import CudaDevice

from .bench import Pools

_SIDE = 8192
_COPIED = 1 << 30
_REPEATS = 11
_LAUNCHES = 200

_cuda: Any = torch.cuda  # torch.cuda.Event is not typed


def machine() -> dict[str, Any]:
    """The accelerator's name and its software. Raises CallerError if there is none."""
    if not torch.cuda.is_available():
        built = torch.version.cuda or "none"
        raise CallerError(
            f"device cuda: expected a CUDA device, found none (torch {torch.__version__}, built "
            f"for CUDA {built}); use --device cpu, or a machine and a torch with CUDA"
        )
    properties = torch.cuda.get_device_properties(0)
    major, minor = torch.cuda.get_device_capability(0)
    return {
        "accelerator": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{major}.{minor}",
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "triton": _triton(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _triton() -> str:
    """The version that compiles the copy kernel: a build of torch for CUDA brings its own."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return "none"


def rates() -> dict[str, int]:
    """Rates of a bf16 matrix product and of a large copy on device, and the time of a launch.

    Bytes read and bytes written both count.
    """
    place = torch.device("cuda")
    left, right = (
        torch.randn((_SIDE, _SIDE), dtype=torch.bfloat16, device=place) for _ in range(2)
    )
    source = torch.ones(_COPIED, dtype=torch.uint8, device=place)
    target = torch.zeros_like(source)
    small = torch.zeros(1, device=place)

    def launches() -> None:
        for _ in range(_LAUNCHES):
            small.add_(1)

    def copy() -> None:
        target.copy_(source)

    return {
        "flops_per_s": 2 * _SIDE**3 * 1_000_000_000 // _median_ns(lambda: left @ right),
        "memory_bytes_per_s": 2 * _COPIED * 1_000_000_000 // _median_ns(copy),
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        "launch_ns": _median_ns(launches) // _LAUNCHES,
    }


def make(pools: Pools, options: DeviceOptions) -> CudaDevice:
    return CudaDevice(*pools, options)


def _median_ns(work: Callable[[], object]) -> int:
    """The median time on the device's clock, without the first run."""
    times: list[int] = []
    for _ in range(_REPEATS + 1):
        begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(max(1, round(begin.elapsed_time(end) * 1_000_000)))
    return median_high(times[1:])
