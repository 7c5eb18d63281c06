"""Measures the copies of one device: alone, in both directions at once, and in batches.

Contains what is issued, how often, and how figures are computed. Does not write profiles (see
commands/calibrate) or create devices (see probes).

Copies are measured as the transfer controller issues them: backups of all layers of a page at once,
loads layer by layer, random pages, and a host that polls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Pages
from hicache.devices.base import CopyJob, Direction, Mark
from sim.hardware.curve import Curve

from .probes.base import Geometry
from .recording_on_sim import layer_bytes
from .stopwatch import Stopwatch, TimedDevice, Timing

POLL_S = 20e-6

_D2H, _H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
_BATCH = 32
_OVERLAPPED = 8


def warm(device: TimedDevice, geometry: Geometry) -> None:
    """Copies every page in both directions once, so that no first use is measured."""
    layers = (0, device.layers)
    for component in geometry.model.components:
        rows = geometry.device_pages[component]
        for first in range(0, geometry.host_pages[component], rows):
            host = np.arange(first, min(first + rows, geometry.host_pages[component]))
            near = np.arange(len(host))
            for way, source, target in ((_H2D, host, near), (_D2H, near, host)):
                stream = device.stream("warm")
                device.copy(stream, CopyJob(way, component, source, target, layers, "warming up"))
                wait_for(device, device.record(stream))


def wait_for(device: TimedDevice, mark: Mark) -> None:
    while not device.query(mark):
        time.sleep(POLL_S)


class Bench:
    """Measures one device. All times are medians of `repeats` copies, on the device's clock."""

    def __init__(self, device: TimedDevice, geometry: Geometry, repeats: int) -> None:
        warm(device, geometry)
        self._device = device
        self._model = geometry.model
        self._component = geometry.model.components[0]
        sizes = geometry.device_pages[self._component], geometry.host_pages[self._component]
        self._pages = min(sizes)
        self._repeats = repeats
        self._bytes = layer_bytes(geometry.model, geometry.page_size)
        self._draw = np.random.default_rng(0)
        self._streams = {_D2H: device.stream("write"), _H2D: device.stream("load")}
        layers = device.layers
        self._layers = {_D2H: (0, layers), _H2D: (0, 1)}

    def measure(self) -> dict[str, Any]:
        """All measurements, as they are written to a profile."""
        figures: dict[str, Any] = {"repeats": self._repeats}
        sizes = _sizes(self._pages)
        times: dict[Direction, dict[int, list[int]]] = {
            way: {count: [] for count in sizes} for way in Direction
        }
        # a new random order each time, so that caches and other load disturb all sizes equally
        cases = [(way, count) for way in Direction for count in sizes]
        for _ in range(self._repeats):
            for index in self._draw.permutation(len(cases)):
                way, count = cases[index]
                times[way][count].append(self._alone(way, count))
        for way in Direction:
            figures[way.value] = self._summary(way, times[way])
        figures["both"] = self._both(figures)
        figures["batch"] = self._batch()
        return figures

    def against_plain(self, plain_ns: Callable[[str, Direction], int]) -> dict[str, dict[str, int]]:
        """The speed of a copy of every page, in random order and all layers, against one plain copy
        of as many bytes, in turn. plain_ns: the time of such a copy."""
        size = self._size(_D2H, self._pages)
        every = (0, self._device.layers)
        found = {}
        for way in Direction:
            pairs = []
            for _ in range(self._repeats):
                whole = plain_ns(self._component, way)
                copies = self._times(
                    lambda watch, way=way: self._issue(watch, way, self._pages, layers=every)  # type: ignore[misc]
                )
                pairs.append((whole, max(1, copies[0].ns)))
            found[way.value] = {
                "bytes": size,
                "plain_ns": _median([whole for whole, _ in pairs]),
                "copy_ns": _median([ns for _, ns in pairs]),
                "share_permille": _median([1000 * whole // ns for whole, ns in pairs]),
            }
        return found

    def drift(self, curves: Mapping[str, Curve]) -> dict[str, float]:
        """The relative change of copy times since these curves were measured, by direction.

        0.1 means 10 % longer. The median over a few sizes; a direction is left out if no size can
        be compared.
        """
        changes: dict[str, float] = {}
        for way in Direction:
            ratios = [
                _median([self._alone(way, count) for _ in range(self._repeats)])
                / curves[way.value].ns(self._size(way, count))
                for count in sorted({1, self._pages // 8, self._pages // 2})
                if count and curves[way.value].covers(self._size(way, count))
            ]
            if ratios:
                changes[way.value] = float(np.median(ratios)) - 1
        return changes

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

    def _times(self, issue: Callable[[Stopwatch], None]) -> list[Timing]:
        watch = Stopwatch(self._device, self._bytes)
        issue(watch)
        return watch.settle(lambda: time.sleep(POLL_S))

    def _alone(self, way: Direction, count: int) -> int:
        return max(1, int(self._times(lambda watch: self._issue(watch, way, count))[0].ns))

    def _size(self, way: Direction, count: int) -> int:
        first, last = self._layers[way]
        return count * sum(self._bytes[self._component][first:last])

    def _summary(self, way: Direction, samples: dict[int, list[int]]) -> dict[str, Any]:
        points = [(self._size(way, count), _median(times)) for count, times in samples.items()]
        overhead, bandwidth, residual = _fit(points)
        return {
            "points": points,
            "p90_ns": [int(np.percentile(times, 90)) for times in samples.values()],
            "largest_bytes_per_s": points[-1][0] * 1_000_000_000 // points[-1][1],
            "fit": {
                "overhead_ns": overhead,
                "bytes_per_s": bandwidth,
                "worst_error_permille": residual,
            },
        }

    def _both(self, figures: dict[str, Any]) -> dict[str, int]:
        """The throughput of both directions together, in thousandths of one direction alone."""
        counts = {way: max(1, self._pages // 2) for way in Direction}
        alone = {
            way: _median([self._alone(way, counts[way]) for _ in range(self._repeats)])
            for way in Direction
        }
        # enough copies of the faster direction to fill the time of the slower one
        longest = max(alone.values()) * _OVERLAPPED
        slowed = []
        for _ in range(max(3, self._repeats // 3)):
            times = self._times(lambda watch: self._issue_both(watch, counts, longest, alone))
            begin = max(
                min(one.start_ns for one in times if one.direction is way) for way in Direction
            )
            end = min(max(one.end_ns for one in times if one.direction is way) for way in Direction)
            inside = [one for one in times if one.start_ns >= begin and one.end_ns <= end]
            for way in Direction:
                own_times = [one.ns for one in inside if one.direction is way]
                if own_times:
                    slowed.append((way, _median(own_times)))
        ratio = 0
        for way in Direction:
            own_times = [ns for one, ns in slowed if one is way]
            ratio += 1000 * alone[way] // _median(own_times) if own_times else 1000
        return {"shared_permille": min(2000, ratio), "copies_compared": len(slowed)}

    def _issue_both(
        self,
        watch: Stopwatch,
        counts: dict[Direction, int],
        longest_ns: int,
        alone: dict[Direction, int],
    ) -> None:
        for way in Direction:
            self._issue(watch, way, counts[way], -(-longest_ns // alone[way]))

    def _batch(self) -> dict[str, int]:
        """The cost of each further copy of a batch, compared with one copy of as many pages."""
        count = min(_BATCH, self._pages)
        singles, whole = [], []
        for _ in range(self._repeats):
            times = self._times(lambda watch: self._issue(watch, _D2H, 1, count))
            singles.append(times[-1].end_ns - times[0].start_ns)
            whole.append(self._alone(_D2H, count))
        return {
            "copies": count,
            "batch_ns": _median(singles),
            "one_copy_ns": _median(whole),
            "overhead_ns_per_copy": max(0, _median(singles) - _median(whole)) // count,
        }


def _sizes(pages: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 and so on, up to `pages`."""
    sizes = {1, pages}
    power = 2
    while power <= pages:
        sizes |= {power, power * 3 // 2} if power * 3 // 2 <= pages else {power}
        power *= 2
    return sorted(sizes)


def _median(times: list[int]) -> int:
    return sorted(times)[len(times) // 2]


def _fit(points: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Fits overhead + bytes / bandwidth to (bytes, ns) by least squares of the relative error.

    Returns the overhead in ns, the bandwidth in bytes/s, and the worst error in thousandths.
    """
    table: NDArray[np.float64] = np.array(points, dtype=np.float64)
    weights = 1 / table[:, 1]
    columns = np.stack((weights, table[:, 0] * weights), axis=1)
    (overhead, slope), *_ = np.linalg.lstsq(columns, np.ones(len(table)), rcond=None)
    overhead, slope = max(0.0, float(overhead)), max(1e-9, float(slope))
    errors = np.abs((overhead + slope * table[:, 0]) * weights - 1)
    return int(overhead), int(1e9 / slope), int(1000 * errors.max())
