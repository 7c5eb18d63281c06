"""The rig of the shadow's and the samples' tests: a run on a CPU device of its own."""

from __future__ import annotations

from collections.abc import Callable

from hicache.core.types import Pages
from hicache.devices.base import DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice
from sim.device.shadow import ShadowOptions
from tests.tiny import tiny
from traces.devices.shadow_run import ShadowRun, Sizes

LAYERS = 3
PAGE = 2
MODEL = tiny(LAYERS)
POOLS = {"full": [(pool.name, pool.layers) for pool in MODEL.pools]}


class Overlapped(ShadowRun):
    """`cpu` is the device beneath; closed with the run."""

    def __init__(
        self,
        device_pages: int = 8,
        host_pages: int = 14,
        *,
        rate: float = 1.0,
        drop: int = -1,
        options: ShadowOptions | None = None,
        fault: Callable[[Direction, str, Pages], bool] | None = None,
    ) -> None:
        sizes = Sizes(MODEL, PAGE, device_pages, host_pages)
        self.cpu = CpuDevice(
            MODEL,
            PAGE,
            {"full": device_pages},
            {"full": host_pages},
            DeviceOptions(layout="page_first_direct", io_backend="direct", fault=fault),
        )
        super().__init__(self.cpu, sizes, rate=rate, drop=drop, options=options)

    def close(self) -> None:
        self.cpu.close()
        super().close()
