"""The interface of probes, which create, describe and measure one kind of device.

A probe is one file in this folder, with the name of its device. Used by calibrate
and twin. Does not measure through the device; see traces/devices/copy_bench, which is the
same for all devices.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from hicache import models, registry
from hicache.core.errors import CallerError
from hicache.devices.base import DeviceOptions, Direction
from hicache.memory.host import check_node
from hicache.memory.layouts import check
from hicache.models import ModelDescription
from traces.devices.stopwatch import TimedInspectable

PROBES = "traces.devices.probes"
MEMORY_LIMIT = 4 << 30
TINY = models.TINY.name  # small enough for any machine
Timer = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Pools to copy between: pages of a model for each component, in a layout, by a backend.
    numa_node: of host memory; None: wherever the system puts it."""

    model: ModelDescription
    page_size: int
    device_pages: dict[str, int]
    host_pages: dict[str, int]
    layout: str
    io_backend: str
    numa_node: int | None = None

    def options(self, timer: Timer) -> DeviceOptions:
        return DeviceOptions(
            layout=self.layout,
            io_backend=self.io_backend,
            numa_node=self.numa_node,
            timer=timer,
        )


class Probe(Protocol):
    """A module of this folder."""

    SUMMARY: str

    def machine(self) -> dict[str, Any]:
        """Describes the machine; `accelerator` identifies it. Raises CallerError if none."""

    def rates(self) -> dict[str, int]:
        """flops_per_s, memory_bytes_per_s and memory_bytes, measured or from the system."""

    def make(self, geometry: Geometry, timer: Timer) -> AbstractContextManager[TimedInspectable]:
        """A device that is closed at the end of the block."""

    def plain_ns(self, device: Any, component: str, way: Direction) -> int:
        """The time of a plain copy of each whole pool of a component, on an idle device that `make`
        made with as many pages on device as on host."""


def load(device: str) -> Probe:
    """The probe of a kind of device.

    Raises CallerError that lists the kinds, or that names a missing package.
    """
    try:
        return cast(Probe, registry.load(PROBES, device))
    except ModuleNotFoundError as error:
        raise CallerError(
            f"device {device}: expected the package {error.name}, found none; install it "
            "(in a clone: .venv/bin/pip install -e '.[torch]'), or use --device cpu"
        ) from None


def measurable() -> list[str]:
    """The models that can be measured: the published ones, and a small one."""
    return [TINY, *models.names()]


def check_geometry(geometry: Geometry) -> None:
    """Raises CallerError for a layout, backend or NUMA node that cannot be used, and if the pools
    need more than MEMORY_LIMIT bytes."""
    check(geometry.layout, geometry.io_backend)
    check_node(geometry.numa_node, "--numa-node")
    model, size = geometry.model, geometry.page_size
    wanted = sum(
        count * model.bytes_per_page(component, size)
        for sizes in (geometry.device_pages, geometry.host_pages)
        for component, count in sizes.items()
    )
    if wanted > MEMORY_LIMIT:
        raise CallerError(
            f"memory: expected pools of at most {MEMORY_LIMIT} bytes, found {wanted} for "
            f"{model.name} at {size} tokens a page; use fewer pages or a smaller model"
        )
