"""Measures the copies of one device: alone, in both directions at once, and in batches.

Copies are measured as the transfer controller issues them: backups of all layers of a page at once,
loads layer by layer, random pages, and a host that polls. Does not write profiles (see
commands/calibrate). `cpu` and `cuda` beside it are the devices that can be measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hicache import models
from hicache.core.errors import CallerError
from hicache.core.types import Pages
from hicache.devices.base import CopyJob, DeviceOptions, Direction, Mark
from hicache.memory.host import check_node
from hicache.memory.layouts import check
from hicache.models import ModelDescription
from sim.hardware.curve import Curve

from . import cpu
from .stopwatch import Pools, Stopwatch, TimedDevice, TimedInspectable, Timing, layer_bytes

POLL_S = 20e-6
DEVICES = ("cpu", "cuda")
MEMORY_LIMIT = 4 << 30
TINY = models.TINY.name  # small enough for any machine

_D2H, _H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
_BATCH = 32
_OVERLAPPED = 8


class Probe(Protocol):
    """Creates, describes and measures one kind of device."""

    def machine(self) -> dict[str, Any]:
        """Describes the machine; `accelerator` identifies it. Raises CallerError if none."""

    def rates(self) -> dict[str, int]:
        """flops_per_s, memory_bytes_per_s and memory_bytes, measured or from the system."""

    def make(
        self, pools: Pools, options: DeviceOptions
    ) -> AbstractContextManager[TimedInspectable]:
        """A device that is closed at the end of the block."""

    def plain_ns(self, device: Any, component: str, way: Direction) -> int:
        """The time of a plain copy of each whole pool of a component, on an idle device that `make`
        made with as many pages on device as on host."""


def probe_of(device: str) -> Probe:
    """Raises CallerError that names a missing package."""
    try:
        return cast(Probe, cpu if device == "cpu" else import_module(f"{__package__}.{device}"))
    except ModuleNotFoundError as error:
        raise CallerError(
            f"device {device}: expected the package {error.name}, found none; install it "
            "(in a clone: .venv/bin/pip install -e '.[torch]'), or use --device cpu"
        ) from None


def measurable() -> list[str]:
    """The models that can be measured: the published ones, and a small one."""
    return [TINY, *models.names()]


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

    def make(self, probe: Probe) -> AbstractContextManager[TimedInspectable]:
        options = DeviceOptions(
            layout=self.layout,
            io_backend=self.io_backend,
            numa_node=self.numa_node,
            timer=time.perf_counter_ns,
        )
        pools = (self.model, self.page_size, self.device_pages, self.host_pages)
        return probe.make(pools, options)

    def check(self) -> None:
        """Raises CallerError for a layout, backend or NUMA node that cannot be used, and if the
        pools need more than MEMORY_LIMIT bytes."""
        check(self.layout, self.io_backend)
        check_node(self.numa_node, "--numa-node")
        wanted = sum(
            count * self.model.bytes_per_page(component, self.page_size)
            for sizes in (self.device_pages, self.host_pages)
            for component, count in sizes.items()
        )
        if wanted > MEMORY_LIMIT:
            raise CallerError(
                f"memory: expected pools of at most {MEMORY_LIMIT} bytes, found {wanted} for "
                f"{self.model.name} at {self.page_size} tokens a page; use fewer pages or a "
                "smaller model"
            )


class Bench:
    """Measures one device. All times are medians of `repeats` copies, on the device's clock."""

    def __init__(self, device: TimedDevice, geometry: Geometry, repeats: int) -> None:
        _warm(device, geometry)
        self._device = device
        self._component = component = geometry.model.components[0]
        self._pages = min(geometry.device_pages[component], geometry.host_pages[component])
        self._repeats = repeats
        self._bytes = layer_bytes(geometry.model, geometry.page_size)
        self._draw = np.random.default_rng(0)
        self._streams = {_D2H: device.stream("write"), _H2D: device.stream("load")}
        self._layers = {_D2H: (0, device.layers), _H2D: (0, 1)}

    def measure(self) -> dict[str, Any]:
        """All measurements, as they are written to a profile."""
        sizes = _sizes(self._pages)
        cases = [(way, count) for way in Direction for count in sizes]
        times: dict[tuple[Direction, int], list[int]] = {case: [] for case in cases}
        # a new random order each time, so that caches and other load disturb all sizes equally
        for _ in range(self._repeats):
            for index in self._draw.permutation(len(cases)):
                times[cases[index]].append(self._alone(*cases[index]))
        figures: dict[str, Any] = {"repeats": self._repeats}
        for way in Direction:
            points = [(self._size(way, count), _median(times[way, count])) for count in sizes]
            figures[way.value] = {
                "points": points,
                "p90_ns": [int(np.percentile(times[way, count], 90)) for count in sizes],
                "largest_bytes_per_s": points[-1][0] * 1_000_000_000 // points[-1][1],
                "fit": _fit(points),
            }
        figures["both"] = self._both()
        figures["batch"] = self._batch()
        return figures

    def against_plain(self, plain_ns: Callable[[str, Direction], int]) -> dict[str, dict[str, int]]:
        """The speed of a copy of every page, in random order and all layers, against one plain copy
        of as many bytes, in turn. plain_ns: the time of such a copy."""
        found = {}
        for way in Direction:
            pairs = []
            for _ in range(self._repeats):
                whole = plain_ns(self._component, way)
                watch = self._watch()
                self._issue(watch, way, self._pages, layers=(0, self._device.layers))
                pairs.append((whole, max(1, _settled(watch)[0].ns)))
            found[way.value] = {
                "bytes": self._size(_D2H, self._pages),
                "plain_ns": _median([whole for whole, _ in pairs]),
                "copy_ns": _median([ns for _, ns in pairs]),
                "share_permille": _median([1000 * whole // ns for whole, ns in pairs]),
            }
        return found

    def drift(self, curves: Mapping[str, Curve]) -> dict[str, float]:
        """The relative change of copy times since these curves were measured, by direction: 0.1
        means 10 % longer. The median over a few sizes; a direction is left out if no size can be
        compared."""
        changes: dict[str, float] = {}
        for way in Direction:
            counts = {1, self._pages // 8, self._pages // 2} - {0}
            ratios = [
                self._median_alone(way, count) / curves[way.value].ns(self._size(way, count))
                for count in sorted(counts)
                if curves[way.value].covers(self._size(way, count))
            ]
            if ratios:
                changes[way.value] = float(np.median(ratios)) - 1
        return changes

    def _watch(self) -> Stopwatch:
        return Stopwatch(self._device, self._bytes)

    def _scattered(self, count: int) -> Pages:
        return cast(Pages, self._draw.permutation(self._pages)[:count].astype(np.int64))

    def _issue(
        self,
        watch: Stopwatch,
        way: Direction,
        count: int,
        copies: int = 1,
        layers: tuple[int, int] | None = None,
    ) -> None:
        for _ in range(copies):
            source, target = self._scattered(count), self._scattered(count)
            chosen = layers or self._layers[way]
            job = CopyJob(way, self._component, source, target, chosen, "calibration")
            watch.copy(self._streams[way], job)

    def _alone(self, way: Direction, count: int) -> int:
        watch = self._watch()
        self._issue(watch, way, count)
        return max(1, _settled(watch)[0].ns)

    def _median_alone(self, way: Direction, count: int) -> int:
        return _median([self._alone(way, count) for _ in range(self._repeats)])

    def _size(self, way: Direction, count: int) -> int:
        first, last = self._layers[way]
        return count * sum(self._bytes[self._component][first:last])

    def _both(self) -> dict[str, int]:
        """The throughput of both directions together, in thousandths of one direction alone."""
        count = max(1, self._pages // 2)
        alone = {way: self._median_alone(way, count) for way in Direction}
        # enough copies of the faster direction to fill the time of the slower one
        longest = max(alone.values()) * _OVERLAPPED
        slowed: dict[Direction, list[int]] = {way: [] for way in Direction}
        for _ in range(max(3, self._repeats // 3)):
            watch = self._watch()
            for way in Direction:
                self._issue(watch, way, count, -(-longest // alone[way]))
            times: dict[Direction, list[Timing]] = {way: [] for way in Direction}
            for timing in _settled(watch):
                times[timing.direction].append(timing)
            begin = max(one[0].start_ns for one in times.values())
            end = min(max(each.end_ns for each in one) for one in times.values())
            for way, each in times.items():
                inside = [one.ns for one in each if one.start_ns >= begin and one.end_ns <= end]
                slowed[way] += [_median(inside)] if inside else []
        ratio = sum(
            1000 * alone[way] // _median(taken) if taken else 1000 for way, taken in slowed.items()
        )
        compared = sum(map(len, slowed.values()))
        return {"shared_permille": min(2000, ratio), "copies_compared": compared}

    def _batch(self) -> dict[str, int]:
        """The cost of each further copy of a batch, compared with one copy of as many pages."""
        count = min(_BATCH, self._pages)
        singles, whole = [], []
        for _ in range(self._repeats):
            watch = self._watch()
            self._issue(watch, _D2H, 1, count)
            times = _settled(watch)
            singles.append(times[-1].end_ns - times[0].start_ns)
            whole.append(self._alone(_D2H, count))
        return {
            "copies": count,
            "batch_ns": _median(singles),
            "one_copy_ns": _median(whole),
            "overhead_ns_per_copy": max(0, _median(singles) - _median(whole)) // count,
        }


def _warm(device: TimedDevice, geometry: Geometry) -> None:
    """Copies every page in both directions once, so that no first use is measured."""
    for component in geometry.model.components:
        rows = geometry.device_pages[component]
        for first in range(0, geometry.host_pages[component], rows):
            host = np.arange(first, min(first + rows, geometry.host_pages[component]))
            near = np.arange(len(host))
            for way, source, target in ((_H2D, host, near), (_D2H, near, host)):
                stream = device.stream("warm")
                layers = (0, device.layers)
                device.copy(stream, CopyJob(way, component, source, target, layers, "warming up"))
                wait_for(device, device.record(stream))


def wait_for(device: TimedDevice, mark: Mark) -> None:
    while not device.query(mark):
        time.sleep(POLL_S)


def _settled(watch: Stopwatch) -> list[Timing]:
    return watch.settle(lambda: time.sleep(POLL_S))


def _sizes(pages: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 and so on, up to `pages`."""
    powers = [1 << power for power in range(pages.bit_length())]
    return sorted({pages, *(one for n in powers for one in (n, n * 3 // 2) if one <= pages)})


def _median(times: list[int]) -> int:
    return sorted(times)[len(times) // 2]


def _fit(points: list[tuple[int, int]]) -> dict[str, int]:
    """Fits overhead + bytes / bandwidth to (bytes, ns) by least squares of the relative error."""
    table: NDArray[np.float64] = np.array(points, dtype=np.float64)
    weights = 1 / table[:, 1]
    columns = np.stack((weights, table[:, 0] * weights), axis=1)
    (overhead, slope), *_ = np.linalg.lstsq(columns, np.ones(len(table)), rcond=None)
    overhead, slope = max(0.0, float(overhead)), max(1e-9, float(slope))
    errors = np.abs((overhead + slope * table[:, 0]) * weights - 1)
    return {
        "overhead_ns": int(overhead),
        "bytes_per_s": int(1e9 / slope),
        "worst_error_permille": int(1000 * errors.max()),
    }
