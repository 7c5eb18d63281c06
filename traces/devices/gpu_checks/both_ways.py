"""The throughput of both directions at once against one alone, for each backend."""

from __future__ import annotations

import numpy as np

from hicache.devices.base import Direction

from . import _bench
from .base import Figure, Outcome, Settings

SUMMARY = "both directions at once against one"

_LEAST = 1.6
_EACH = _bench.MOVED_PAGES // 2


def run(settings: Settings) -> Outcome:
    return Outcome([_measure(backend, settings) for backend in ("direct", "kernel")])


def _measure(backend: str, settings: Settings) -> Figure:
    """The two directions use different pages, so they share only the bus."""
    device_pages, host_pages = _bench.scattered(np.random.default_rng(settings.seed))
    parts = {
        Direction.DEVICE_TO_HOST: (device_pages[:_EACH], host_pages[:_EACH]),
        Direction.HOST_TO_DEVICE: (device_pages[_EACH:], host_pages[_EACH:]),
    }
    with _bench.make(_bench.LAYOUT, backend) as device:
        streams = {direction: device.stream(direction.value) for direction in Direction}
        start = device.stream("compute")

        def run_these(*directions: Direction) -> int:
            device.synchronize(device.record(start))
            begun = device.record(start)
            for direction in directions:
                device.wait(streams[direction], begun)
            ends = [
                _bench.transfer(device, streams[one], one, parts[one], _bench.groups_of(one))[-1]
                for one in directions
            ]
            for mark in ends:
                device.synchronize(mark)
            last_ns = max(device.reached_ns(mark) for mark in ends)
            return last_ns - device.reached_ns(begun)

        alone_ns = [
            _bench.repeated(lambda one=one: run_these(one), settings.repeats)  # type: ignore[misc]
            for one in Direction
        ]
        both_ns = _bench.repeated(lambda: run_these(*Direction), settings.repeats)
    # both directions move the same bytes, so the rate of one is the mean of the two rates
    rate = sum(1 / ns for ns in alone_ns) / len(alone_ns)
    return Figure(f"{_bench.LAYOUT} {backend}: of one direction", 2 / both_ns / rate, "x", _LEAST)
