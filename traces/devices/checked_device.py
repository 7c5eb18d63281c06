"""A device whose reads and copies are checked while one of its streams is held back.

Contains the content of every write, the comparison of every read and copy, and the holds. Does not
choose the calls (see forced) or hold a stream by itself (see hicache/devices).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hicache.core.types import Tier
from hicache.devices.base import (
    Area,
    Bytes,
    CopyJob,
    Direction,
    Front,
    Holdable,
    Stream,
    Touch,
    Words,
)
from hicache.memory.pools import contents_of
from hicache.models import ModelDescription

_SPOILED = np.uint64(0xDEAD << 48)


class Hold(NamedTuple):
    """Keeps a stream busy before its copy or access number `item`, or before each (-1)."""

    stream: str
    time_ns: int
    item: int = -1


class CheckedDevice(Front[Holdable]):
    """A device that knows what its pages hold if everything happens in the order of issue.

    Each write has its own content, the targets of a load are overwritten first, and everything that
    is read or copied is compared. Nothing differs if the streams are ordered as they must be.

    wrong: one line for each difference. compared: reads compared. held: holds so far.
    """

    def __init__(
        self, device: Holdable, model: ModelDescription, page_size: int, hold: Hold | None
    ) -> None:
        super().__init__(device)
        self._plans = contents_of(model, page_size)
        self._hold = hold
        self._held = device.stream(hold.stream) if hold else None
        self._issued = 0
        self._written = 0
        # seed of the content of a page in a layer; missing if it was never written
        self._seeds: dict[tuple[Tier, str, int, int], int] = {}
        self.wrong: list[str] = []
        self.compared = 0
        self.held = 0

    def copy(self, stream: Stream, job: CopyJob) -> None:
        near, far = job.near, job.far
        if job.direction is Direction.HOST_TO_DEVICE:
            self.inner.scribble(stream, far, self._fresh(len(far.pages)) | _SPOILED)
        self._hold_before(stream)
        self.inner.copy(stream, job)
        for layer in range(*job.layers):
            for here, there in zip(near.pages.tolist(), far.pages.tolist(), strict=True):
                seed = self._seeds.get((*near.place, layer, here))
                if seed is None:
                    self._seeds.pop((*far.place, layer, there), None)
                else:
                    self._seeds[(*far.place, layer, there)] = seed
        self._compare(stream, far, job.why)

    def touch(self, stream: Stream, touch: Touch) -> None:
        self._hold_before(stream)
        area = touch.area
        if touch.mode == "r":
            self._compare(stream, area, touch.why)
            return
        seeds = self._fresh(len(area.pages))
        self.inner.scribble(stream, area, seeds)
        for layer in range(*area.layers):
            for page, seed in zip(area.pages.tolist(), seeds.tolist(), strict=True):
                self._seeds[(*area.place, layer, page)] = seed

    def _hold_before(self, stream: Stream) -> None:
        if self._hold is None or stream != self._held:
            return
        if self._hold.item in (-1, self._issued):
            self.inner.hold(stream, self._hold.time_ns)
            self.held += 1
        self._issued += 1

    def _compare(self, stream: Stream, area: Area, why: str) -> None:
        """Compares the pages that were written, layer by layer."""
        for layer in range(*area.layers):
            seeds = [self._seeds.get((*area.place, layer, page)) for page in area.pages.tolist()]
            written_pages = [at for at, seed in enumerate(seeds) if seed is not None]
            if written_pages:
                wanted = np.array([seeds[at] for at in written_pages], dtype=np.uint64)
                written = replace(area, pages=area.pages[written_pages], layers=(layer, layer + 1))
                self._peek(stream, written, wanted, why)

    def _peek(self, stream: Stream, area: Area, seeds: Words, why: str) -> None:
        def compare(blocks: tuple[Bytes, ...]) -> None:
            self.compared += 1
            plans = self._plans[area.component]
            for number, (plan, block) in enumerate(zip(plans, blocks, strict=True)):
                expected = plan.stamped(seeds, number, plan.layers_in(*area.layers))
                if not np.array_equal(block, expected):
                    some = area.pages.tolist()[:8]
                    where = f"{area.tier.name.lower()} pages {some} of {plan.pool.name}"
                    self.wrong.append(f"{why}: {where}, layer {area.layers[0]}")

        self.inner.peek(stream, area, compare)

    def _fresh(self, count: int) -> Words:
        first = self._written + 1
        self._written += count
        return np.arange(first, first + count, dtype=np.uint64)
