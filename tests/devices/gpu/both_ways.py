"""The throughput of both directions at once against one alone, for each backend.

On a busy device Python issues both before either starts; on an idle one the second starts later.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from hicache.devices.base import Direction

from . import _bench
from .base import REPEATS, Figure, Outcome

_LEAST = 1.6
_BUSY_NS = 100_000_000  # longer than both take to issue
_EACH = _bench.MOVED_PAGES // 2


def run() -> Outcome:
    figures = [
        _measure(backend, name, held_ns)
        for backend in ("direct", "kernel")
        for name, held_ns in (("idle", 0), ("busy", _BUSY_NS))
    ]
    return Outcome(figures)


def _measure(backend: str, name: str, held_ns: int) -> Figure:
    """The two directions use different pages, so they share only the bus. They start together after
    `held_ns`, which the device is busy while Python issues them."""
    device_pages, host_pages = _bench.scattered(np.random.default_rng(0))
    parts = {
        Direction.DEVICE_TO_HOST: (device_pages[:_EACH], host_pages[:_EACH]),
        Direction.HOST_TO_DEVICE: (device_pages[_EACH:], host_pages[_EACH:]),
    }
    with _bench.make(_bench.LAYOUT, backend) as device:
        streams = {direction: device.stream(direction.value) for direction in Direction}
        start = device.stream("compute")

        def run_these(*directions: Direction) -> int:
            device.synchronize(device.record(start))
            if held_ns:
                _bench.hold(device, start, held_ns)
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

        alone_ns = [_bench.repeated(partial(run_these, one), REPEATS) for one in Direction]
        both_ns = _bench.repeated(partial(run_these, *Direction), REPEATS)
    # both directions move the same bytes, so the rate of one is the mean of the two rates
    rate = sum(1 / ns for ns in alone_ns) / len(alone_ns)
    title = f"{_bench.LAYOUT} {backend}, {name}: of one direction"
    return Figure(title, 2 / both_ns / rate, "x", _LEAST)
