"""Measures the copies of one device, and times every copy of a run.

Copies are issued as the transfer controller issues them: backups of all layers of a page at once,
loads layer by layer, random pages, and a host that polls. `Cpu` and the module `cuda` beside this
one are the devices that can be measured.
"""

import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from statistics import median_high
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.types import Pages
from hicache.devices import base
from hicache.devices.base import CopyJob, Device, DeviceEvent, DeviceOptions, Direction, Stream
from hicache.devices.cpu import CpuDevice
from hicache.memory.layouts import check
from hicache.models import ModelDescription
from sim.replica import group_bytes

POLL_S = 20e-6
DEVICES = ("cpu", "cuda")
MEMORY_LIMIT = 4 << 30
# A model, tokens of a page, and the pages of each component on device and on host.
Pools: TypeAlias = tuple[ModelDescription, int, dict[str, int], dict[str, int]]

_D2H, _H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
_OVERLAPPED = 8
_COLLECT = 1024
_SIDE, _COPIED, _REPEATS = 1024, 64 << 20, 7  # of the products and copies of the processor
_SWITCH_S = 20e-6


class TimedDevice(Device, Protocol):
    """A device that knows when a mark was reached, in integer nanoseconds of its clock."""

    def reached_ns(self, device_event: DeviceEvent) -> int: ...


class Timing(NamedTuple):
    """One copy. number: in order of issue. start_ns, end_ns: on the device's clock."""

    number: int
    direction: Direction
    component: str
    layers: tuple[int, int]
    bytes: int
    start_ns: int = 0
    end_ns: int = 0

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


class Stopwatch(base.Front[TimedDevice]):
    """Times the copies of the inner device by a mark before and one after each: on the wall clock
    (cpu, cuda), or in virtual time (the simulated device). Copies of such a device never fail."""

    def __init__(self, inner: TimedDevice, model: ModelDescription, page_size: int) -> None:
        super().__init__(inner)
        self._page_bytes = layer_bytes(model, page_size)
        self._open: deque[tuple[Timing, DeviceEvent, DeviceEvent]] = deque()
        self._copies = 0
        self._timings: dict[int, Timing] = {}

    def copy(self, stream: Stream, job: CopyJob) -> None:
        pages = len(job.source)
        if not pages:
            return
        size = pages * sum(self._page_bytes[job.component][slice(*job.layers)])
        if not size:  # the component has no pool in these layers
            self.inner.copy(stream, job)
            return
        timing = Timing(self._copies, job.direction, job.component, job.layers, size)
        self._copies += 1
        before = self.inner.record(stream)
        self.inner.copy(stream, job)
        self._open.append((timing, before, self.inner.record(stream)))
        if self._copies % _COLLECT == 0:  # a device forgets the times of marks that nobody reads
            self._collect()

    def _collect(self) -> None:
        """Reads the times of every copy that has ended."""
        reached = self.inner.reached_ns
        for _ in range(len(self._open)):
            timing, before, after = self._open.popleft()
            if self.inner.query(after):
                ended = timing._replace(start_ns=reached(before), end_ns=reached(after))
                self._timings[timing.number] = ended
            else:
                self._open.append((timing, before, after))

    def settle(self, idle: Callable[[], None] = lambda: time.sleep(POLL_S)) -> list[Timing]:
        """All timings in order of issue, after the last copy has ended. idle: called to wait."""
        self._collect()
        while self._open:
            idle()
            self._collect()
        return [self._timings[number] for number in sorted(self._timings)]


def layer_bytes(model: ModelDescription, page_size: int) -> Mapping[str, tuple[int, ...]]:
    """Bytes of one page, for each component and each layer of the model."""
    return {
        component: group_bytes(model, component, page_size, model.layers, 1)
        for component in model.components
    }


class Cpu:
    """The reference device: memory of this process, copied by threads."""

    @staticmethod
    def machine() -> dict[str, Any]:
        """The name and number of processors."""
        return {
            "accelerator": _processor(),
            "cores": os.cpu_count() or 1,
            "python": platform.python_version(),
        }

    @staticmethod
    def rates() -> dict[str, int]:
        """Rates of a float32 matrix product and of a large copy (bytes read plus written)."""
        draw = np.random.default_rng(0)
        left, right = (draw.random((_SIDE, _SIDE), dtype=np.float32) for _ in range(2))
        source = np.ones(_COPIED, dtype=np.uint8)
        target = np.zeros_like(source)
        product = median_high([_timed_ns(lambda: left @ right) for _ in range(_REPEATS)])
        copy = median_high([_timed_ns(lambda: np.copyto(target, source)) for _ in range(_REPEATS)])
        return {
            "flops_per_s": 2 * _SIDE**3 * 1_000_000_000 // product,
            "memory_bytes_per_s": 2 * _COPIED * 1_000_000_000 // copy,
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        }

    @staticmethod
    @contextmanager
    def make(pools: Pools, options: DeviceOptions) -> Iterator[CpuDevice]:
        """Its threads share the interpreter's lock with the caller, who could keep it for the
        length of a whole copy with the usual switch interval of 5 ms."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            with CpuDevice(*pools, options) as device:
                yield device
        finally:
            sys.setswitchinterval(interval)


def probe_of(device: str) -> Any:
    """What creates, describes and measures one kind of device: `machine()`, of which `accelerator`
    identifies it, `rates()`, and `make(pools, options)`. Raises CallerError that names a missing
    package."""
    try:
        return Cpu if device == "cpu" else import_module(f"{__package__}.{device}")
    except ModuleNotFoundError as error:
        raise CallerError(
            f"device {device}: expected the package {error.name}, found none; install it "
            "(in a clone: .venv/bin/pip install -e '.[torch]'), or use --device cpu"
        ) from None


@dataclass(frozen=True, slots=True)
class Geometry:
    """Pools to copy between: pages of a model for each component, in a layout, by a backend."""

    model: ModelDescription
    page_size: int
    device_pages: dict[str, int]
    host_pages: dict[str, int]
    layout: str
    io_backend: str

    def make(self, probe: Any) -> AbstractContextManager[TimedDevice]:
        """A device that is closed at the end of the block. Raises CallerError for a layout or a
        backend that cannot be used, and for pools of more than MEMORY_LIMIT bytes."""
        check(self.layout, self.io_backend)
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
        options = DeviceOptions(
            layout=self.layout, io_backend=self.io_backend, timer=time.perf_counter_ns
        )
        pools = (self.model, self.page_size, self.device_pages, self.host_pages)
        return cast(AbstractContextManager[TimedDevice], probe.make(pools, options))


class Bench:
    """Measures one device. All times are medians of `repeats` copies, on the device's clock."""

    def __init__(self, device: TimedDevice, geometry: Geometry, repeats: int) -> None:
        warm(device, geometry)
        self._device = device
        self._geometry = geometry
        self._component = component = geometry.model.components[0]
        self._pages = min(geometry.device_pages[component], geometry.host_pages[component])
        self._repeats = repeats
        self._draw = np.random.default_rng(0)
        self._streams = {_D2H: device.stream("write"), _H2D: device.stream("load")}
        self._layers = {_D2H: (0, device.layers), _H2D: (0, 1)}

    def curves(self) -> dict[str, list[tuple[int, int]]]:
        """(bytes, ns) of copies of 1, 2, 3, 4, 6, 8, 12 and so on pages, by direction."""
        powers = [1 << power for power in range(self._pages.bit_length())]
        drawn = {self._pages, *powers, *(power * 3 // 2 for power in powers)}
        counts = sorted(count for count in drawn if count <= self._pages)
        cases = [(way, count) for way in Direction for count in counts]
        times: dict[tuple[Direction, int], list[int]] = {case: [] for case in cases}
        # a new random order each time, so that caches and other load disturb all sizes equally
        for _ in range(self._repeats):
            for index in self._draw.permutation(len(cases)):
                times[cases[index]].append(self._alone(*cases[index]))
        bytes_of = layer_bytes(self._geometry.model, self._geometry.page_size)[self._component]
        page = {way: sum(bytes_of[slice(*self._layers[way])]) for way in Direction}
        return {
            way.value: [(count * page[way], median_high(times[way, count])) for count in counts]
            for way in Direction
        }

    def both_permille(self) -> int:
        """The throughput of both directions together, in thousandths of one direction alone."""
        count = max(1, self._pages // 2)
        alone = {
            way: median_high([self._alone(way, count) for _ in range(self._repeats)])
            for way in Direction
        }
        # enough copies of the faster direction to fill the time of the slower one
        longest = max(alone.values()) * _OVERLAPPED
        slowed: dict[Direction, list[int]] = {way: [] for way in Direction}
        for _ in range(max(3, self._repeats // 3)):
            checker = self._checker()
            for way in Direction:
                for _ in range(-(-longest // alone[way])):
                    self._issue(checker, way, count)
            times: dict[Direction, list[Timing]] = {way: [] for way in Direction}
            for timing in checker.settle():
                times[timing.direction].append(timing)
            begin = max(each[0].start_ns for each in times.values())
            end = min(max(timing.end_ns for timing in each) for each in times.values())
            for way, each in times.items():
                within = [item for item in each if item.start_ns >= begin and item.end_ns <= end]
                inside = [timing.ns for timing in within]
                slowed[way] += [median_high(inside)] if inside else []
        ratio = sum(
            1000 * alone[way] // median_high(taken) if taken else 1000
            for way, taken in slowed.items()
        )
        return min(2000, ratio)

    def _checker(self) -> Stopwatch:
        return Stopwatch(self._device, self._geometry.model, self._geometry.page_size)

    def _issue(self, checker: Stopwatch, way: Direction, count: int) -> None:
        source, target = (
            cast(Pages, self._draw.permutation(self._pages)[:count].astype(np.int64))
            for _ in range(2)
        )
        job = CopyJob(way, self._component, source, target, self._layers[way], "calibration")
        checker.copy(self._streams[way], job)

    def _alone(self, way: Direction, count: int) -> int:
        checker = self._checker()
        self._issue(checker, way, count)
        return max(1, checker.settle()[0].ns)


def warm(device: TimedDevice, geometry: Geometry) -> None:
    """Copies every page in both directions once, so that no first use is measured."""
    stream, layers = device.stream("warm"), (0, device.layers)
    for component in geometry.model.components:
        rows = geometry.device_pages[component]
        for first in range(0, geometry.host_pages[component], rows):
            host = np.arange(first, min(first + rows, geometry.host_pages[component]))
            near = np.arange(len(host))
            for way, source, target in ((_H2D, host, near), (_D2H, near, host)):
                device.copy(stream, CopyJob(way, component, source, target, layers, "warming up"))
                device_event = device.record(stream)
                while not device.query(device_event):
                    time.sleep(POLL_S)


def fit(points: list[tuple[int, int]]) -> dict[str, int]:
    """Fits overhead + bytes / bandwidth to (bytes, ns) by least squares of the relative error."""
    sizes, times = np.array(points, dtype=np.float64).T
    slope, overhead = np.polyfit(sizes, times, 1, w=1 / times)
    overhead, slope = max(0.0, float(overhead)), max(1e-9, float(slope))
    return {"overhead_ns": int(overhead), "bytes_per_s": int(1e9 / slope)}


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
