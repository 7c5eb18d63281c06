"""A device that knows what it must hold, and one of whose streams is held back.

Lives here: the content of every write, the comparison of every read and copy, and the place of a
hold. Must not live here: which calls are made (force), or how a device holds a stream (devices).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from hicache.core.types import Pages, Tier
from hicache.devices.base import Bytes, Direction, Front, Holdable, Stream, Words
from hicache.memory.pools import contents_of
from hicache.models import ModelDescription

_SPOILED = np.uint64(0xDEAD << 48)


class Hold(NamedTuple):
    """A stream is kept busy before its copy or access number `item`, or before each (-1)."""

    stream: str
    time_ns: int
    item: int = -1


class Certified(Front[Holdable]):
    """A device that is told what its pages hold if everything happens in the order of issue.

    Each write has content of its own, a load's targets are spoiled first, and all that is read or
    copied is compared. Where streams are ordered as they must be, nothing differs.
    """

    def __init__(
        self, device: Holdable, model: ModelDescription, page_size: int, hold: Hold | None
    ) -> None:
        super().__init__(device)
        self._plans = contents_of(model, page_size)
        self._hold = hold
        self._held = device.stream(hold.stream) if hold else None
        self._items = 0
        self._written = 0
        # Seeds of what a page holds in a layer; absent where nobody wrote it.
        self._seeds: dict[tuple[Tier, str, int, int], int] = {}
        self.wrong: list[str] = []
        self.compared = 0
        self.held = 0

    def copy(
        self,
        stream: Stream,
        direction: Direction,
        component: str,
        source: Pages,
        target: Pages,
        layers: tuple[int, int],
        why: str,
    ) -> None:
        near, far = direction.ends
        if direction is Direction.HOST_TO_DEVICE:
            spoil = self._fresh(len(target)) | _SPOILED
            self.inner.scribble(stream, far, component, target, spoil, layers)
        self._before(stream)
        self.inner.copy(stream, direction, component, source, target, layers, why)
        for layer in range(*layers):
            for here, there in zip(source.tolist(), target.tolist(), strict=True):
                seed = self._seeds.get((near, component, layer, here))
                if seed is None:
                    self._seeds.pop((far, component, layer, there), None)
                else:
                    self._seeds[far, component, layer, there] = seed
        self._compare(stream, far, component, target, layers, why)

    def touch(
        self,
        stream: Stream,
        component: str,
        pages: Pages,
        mode: Literal["r", "w"],
        layers: tuple[int, int],
        why: str,
    ) -> None:
        self._before(stream)
        if mode == "r":
            self._compare(stream, Tier.DEVICE, component, pages, layers, why)
            return
        seeds = self._fresh(len(pages))
        self.inner.scribble(stream, Tier.DEVICE, component, pages, seeds, layers)
        for layer in range(*layers):
            for page, seed in zip(pages.tolist(), seeds.tolist(), strict=True):
                self._seeds[Tier.DEVICE, component, layer, page] = seed

    def _before(self, stream: Stream) -> None:
        if self._hold is None or stream != self._held:
            return
        if self._hold.item in (-1, self._items):
            self.inner.hold(stream, self._hold.time_ns)
            self.held += 1
        self._items += 1

    def _compare(
        self,
        stream: Stream,
        tier: Tier,
        component: str,
        pages: Pages,
        layers: tuple[int, int],
        why: str,
    ) -> None:
        for layer in range(*layers):
            seeds = [self._seeds.get((tier, component, layer, page)) for page in pages.tolist()]
            kept = [at for at, seed in enumerate(seeds) if seed is not None]
            if kept:
                wanted = np.array([seeds[at] for at in kept], dtype=np.uint64)
                self._look(stream, tier, component, pages[kept], wanted, layer, why)

    def _look(
        self,
        stream: Stream,
        tier: Tier,
        component: str,
        pages: Pages,
        seeds: Words,
        layer: int,
        why: str,
    ) -> None:
        span = (layer, layer + 1)

        def compare(found: tuple[Bytes, ...]) -> None:
            self.compared += 1
            for number, (plan, block) in enumerate(zip(self._plans[component], found, strict=True)):
                if not np.array_equal(block, plan.stamped(seeds, number, plan.layers_in(*span))):
                    where = f"{tier.name.lower()} pages {pages.tolist()[:8]} of {plan.pool.name}"
                    self.wrong.append(f"{why}: {where}, layer {layer}")

        self.inner.peek(stream, tier, component, pages, span, compare)

    def _fresh(self, count: int) -> Words:
        first = self._written + 1
        self._written += count
        return np.arange(first, first + count, dtype=np.uint64)
