"""Checks that a stream held by a spin kernel ends after the other stream, both ways."""

from __future__ import annotations

import numpy as np

from hicache.devices.base import CopyJob, Direction

from . import _bench
from ._bench import ALL_LAYERS as _ALL
from .base import Figure, Outcome

_HELD_NS = 100_000_000


def run() -> Outcome:
    faults = []
    for held, free in (("write", "load"), ("load", "write")):
        with _bench.small("direct", 8) as device:
            pages = np.arange(4, dtype=np.int64)
            _bench.hold(device, device.stream(held), _HELD_NS)
            marks = {}
            for name, direction, shift in (
                ("write", Direction.DEVICE_TO_HOST, 0),
                ("load", Direction.HOST_TO_DEVICE, 4),
            ):
                stream = device.stream(name)
                device.copy(
                    stream,
                    CopyJob(direction, "full", pages + shift, pages + shift, _ALL, name),
                )
                marks[name] = device.record(stream)
            device.synchronize(marks[free])
            if device.query(marks[held]):
                faults.append(f"{held} was held and ended before {free}")
            device.synchronize(marks[held])
    return Outcome([Figure("orders tried", 2)], faults)
