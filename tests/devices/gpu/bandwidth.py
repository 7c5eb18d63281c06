"""The bandwidth of random pages as a share of one large pinned copy, for each backend.

Both are measured in the same run on the same device. Only the page_first_direct layout has a
target; other layouts are only reported.
"""

from __future__ import annotations

import numpy as np

from hicache.devices.base import Direction
from hicache.memory.layouts import legal

from . import _bench
from .base import REPEATS, Figure, Outcome

_LEAST = {"direct": 0.90, "kernel": 0.85}


def run() -> Outcome:
    figures: list[Figure] = []
    for layout, backend in legal():
        least = _LEAST[backend] if layout == _bench.LAYOUT else None
        figures += _measure(layout, backend, least)
    return Outcome(figures)


def _measure(layout: str, backend: str, least: float | None) -> list[Figure]:
    figures = []
    draw = np.random.default_rng(0)
    with _bench.make(layout, backend) as device:
        stream = device.stream("bench")
        for direction in Direction:
            large_ns = _bench.large_copy(device, direction, REPEATS)

            def once(direction: Direction = direction) -> int:
                pages = _bench.scattered(draw)
                groups = _bench.groups_of(direction)
                return _bench.timed(
                    device,
                    stream,
                    lambda: _bench.transfer(device, stream, direction, pages, groups),
                )

            took_ns = _bench.repeated(once, REPEATS)
            moved = _bench.MOVED_PAGES * _bench.PAGE_BYTES
            way = f"{layout} {backend} {direction.value}"
            figures += [
                Figure(f"{way}: one large copy", moved / large_ns, "GB/s"),
                Figure(f"{way}: scattered pages", moved / took_ns, "GB/s"),
                Figure(f"{way}: share", large_ns / took_ns, "", least),
            ]
    return figures
