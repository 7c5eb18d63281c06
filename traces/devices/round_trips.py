"""Copies page sets on a real device and compares every byte with copies made by numpy.

Contains the cases (models, dtypes, layouts, backends), the drawing of page sets and the comparison.
Does not contain the command or its output (see commands/check_device), or create devices (see
probes).

After every set all bytes of all pools on both tiers are compared, so pages that are not a target
must be unchanged. Targets on device are overwritten before each load. The expected bytes never come
from the device: they are generated from drawn seeds, and numpy copies whole rows of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.devices.base import Area, Bytes, CopyJob, Direction, Inspectable, Stream
from hicache.memory.layouts import legal
from hicache.memory.pools import PoolPlan
from hicache.models import ModelDescription, PoolDescription
from hicache.runtime.samples import Report, Samples

from .probes.base import Geometry, Probe

DEVICE_PAGES, HOST_PAGES = 6, 9
DTYPES = ("bf16", "fp8", "fp4")
_LAYERS = 3
_HEADS = 4
_PAGE_BYTES = 16_384
_PAGE_SIZE = 4
_COUNTS = {Tier.DEVICE: DEVICE_PAGES, Tier.HOST: HOST_PAGES}
_Mirror: TypeAlias = dict[tuple[Tier, str], list[Bytes]]


class Case(NamedTuple):
    """One device to create. model: cut down, every pool of `dtype`."""

    name: str
    model: ModelDescription
    dtype: str
    page_size: int
    layout: str
    io_backend: str
    numa_node: int | None = None

    def geometry(self, device_pages: int, host_pages: int) -> Geometry:
        """Pools with as many pages of each component."""
        device, host = (
            dict.fromkeys(self.model.components, count) for count in (device_pages, host_pages)
        )
        ways = (self.layout, self.io_backend, self.numa_node)
        return Geometry(self.model, self.page_size, device, host, *ways)

    @property
    def ways(self) -> int:
        """The number of components times directions."""
        return len(self.model.components) * len(Direction)


@dataclass(slots=True)
class Count:
    """Sums of one pool in one case and direction."""

    sets: int = 0
    pages: int = 0
    bytes: int = 0
    mismatches: int = 0


@dataclass(slots=True)
class Outcome:
    """The results of one case. wrong: the first mismatches, in words."""

    case: Case
    counts: dict[tuple[str, Direction], Count] = field(default_factory=dict)
    sets: dict[Direction, int] = field(default_factory=lambda: dict.fromkeys(Direction, 0))
    wrong: list[str] = field(default_factory=list)
    samples: Report | None = None

    @property
    def mismatches(self) -> int:
        return sum(count.mismatches for count in self.counts.values())


def cases(
    chosen: Sequence[tuple[str, ModelDescription]], numa_node: int | None = None
) -> list[Case]:
    """Every model in every dtype, and every legal layout and backend. numa_node: of all of them."""
    return [
        Case(name, model, dtype, page_size(model), layout, backend, numa_node)
        for name, described in chosen
        for dtype in DTYPES
        for model in [cut(described, dtype)]
        for layout, backend in legal()
    ]


def page_size(model: ModelDescription) -> int:
    """The smallest page size of 4 tokens or more that suits every pool."""
    size = _PAGE_SIZE
    while refused(model, size):
        size += 1
    return size


def refused(model: ModelDescription, size: int) -> str:
    """Why pages of `size` tokens are not possible; empty if they are."""
    try:
        for pool in model.pools:
            pool.rows_per_page(size)
    except CallerError as error:
        return str(error)
    return ""


def cut(model: ModelDescription, dtype: str) -> ModelDescription:
    """The model with few layers and short rows, so that all bytes can be compared each time.

    Everything that determines the position of a byte stays: the pools and the pools that they
    follow, their parts, rows per page, heads, and the scale and tail after the elements of each
    head.
    """
    size = page_size(model)
    pools = tuple(_cut(pool, dtype, size) for pool in model.pools)
    layers = max((pool.layers[-1] + 1 for pool in pools if pool.layers), default=1)
    return replace(model, layers=layers, pools=pools)


def _cut(pool: PoolDescription, dtype: str, size: int) -> PoolDescription:
    if not pool.head_elements:
        return pool
    layers = pool.layers[:_LAYERS]
    heads = min(pool.heads, _HEADS)
    rows = max(1, len(layers) * len(pool.parts) * pool.rows_per_page(size) * heads)
    elements = min(pool.head_elements, max(2, _PAGE_BYTES // 2 // rows // 2 * 2))
    scales = (16, 1) if dtype == "fp4" else (pool.scale_group, pool.scale_bytes)
    return replace(
        pool,
        layers=layers,
        heads=heads,
        head_elements=elements,
        dtype=dtype,
        scale_group=scales[0],
        scale_bytes=scales[1],
    )


class _Run:
    """One case on one device."""

    def __init__(self, case: Case, device: Samples, draw: Generator) -> None:
        self.case = case
        self.outcome = Outcome(case)
        self._device = device
        self._draw = draw
        self._stream = device.stream("compute")
        self._plans = {
            (tier, name): [
                PoolPlan.of(tier.name.lower(), pool, _COUNTS[tier], case.page_size, "layer_first")
                for pool in case.model.pools_of(name)
            ]
            for tier in _COUNTS
            for name in case.model.components
        }
        self._mirror: _Mirror = {place: self._fill(place) for place in self._plans}

    def start(self) -> None:
        """Compares both tiers after they were filled."""
        self._compare("filling", None)

    def copy_set(self, name: str, direction: Direction) -> None:
        """Copies one page set and compares everything."""
        near, far = direction.ends
        draw = self._draw
        count = int(draw.integers(1, min(_COUNTS.values()) + 1))
        source, target = (_draw_pages(draw, _COUNTS[tier], count) for tier in (near, far))
        first, last = sorted(draw.choice(self._device.layers + 1, 2, replace=False).tolist())
        layers = (first, last) if draw.integers(2) else (0, self._device.layers)
        job = CopyJob(direction, name, source, target, layers, self.case.name)
        if far is Tier.DEVICE:
            seeds = draw.integers(0, 1 << 63, count, dtype=np.uint64)
            self._device.scribble(self._stream, job.far, seeds)
        self._device.copy(self._stream, job)
        for number, plan in enumerate(self._plans[near, name]):
            own = plan.layers_in(*layers)
            block = self._mirror[near, name][number][own.start : own.stop, source]
            self._mirror[far, name][number][own.start : own.stop, target] = block
            tally = self.outcome.counts.setdefault((plan.pool.name, direction), Count())
            tally.sets += 1
            tally.pages += count
            tally.bytes += block.nbytes
        self.outcome.sets[direction] += 1
        self._compare(
            f"{direction.value} of {name} pages {source.tolist()} to {target.tolist()}, layers "
            f"{layers[0]}..{layers[1] - 1}",
            direction,
        )

    def _fill(self, place: tuple[Tier, str]) -> list[Bytes]:
        whole = self._whole(place)
        seeds = self._draw.integers(0, 1 << 63, len(whole.pages), dtype=np.uint64)
        self._device.scribble(self._stream, whole, seeds)
        return [
            plan.stamped(seeds, number, plan.layers_in(*whole.layers)).copy()
            for number, plan in enumerate(self._plans[place])
        ]

    def _whole(self, place: tuple[Tier, str]) -> Area:
        return Area(*place, np.arange(_COUNTS[place[0]]), (0, self._device.layers))

    def _compare(self, what: str, direction: Direction | None) -> None:
        """Compares every byte of every pool on both tiers."""
        actual: _Mirror = {}
        for place in self._plans:

            def keep(blocks: tuple[Bytes, ...], place: tuple[Tier, str] = place) -> None:
                actual[place] = list(blocks)

            self._device.peek(self._stream, self._whole(place), keep)
        _finish(self._device, self._stream)
        for place, plans in self._plans.items():
            pools = zip(plans, actual[place], self._mirror[place], strict=True)
            for plan, block, expected in pools:
                if not np.array_equal(block, expected):
                    self._report(place, plan, block != expected, what, direction)
                    expected[:] = block

    def _report(
        self,
        place: tuple[Tier, str],
        plan: PoolPlan,
        wrong: Bytes,
        what: str,
        direction: Direction | None,
    ) -> None:
        layer, page = (int(axis[0]) for axis in np.nonzero(wrong.any(axis=(2, 3, 4, 5))))
        case = self.case
        self.outcome.wrong.append(
            f"{case.name}, {case.dtype}, {case.layout}, {case.io_backend}: {what}: pool "
            f"{plan.pool.name}, {place[0].name.lower()} page {page}, layer "
            f"{plan.pool.layers[layer]}: {int(wrong.sum())} bytes differ"
        )
        tally = self.outcome.counts.setdefault(
            (plan.pool.name, direction or Direction.DEVICE_TO_HOST), Count()
        )
        tally.mismatches += 1


def run(
    probe: Probe,
    case: Case,
    sets: int,
    seed: tuple[int, int],
    rate: float,
    done: Callable[[int], object],
) -> Outcome:
    """Runs one case. done: called with the page sets so far. rate: fraction of pages to hash."""
    geometry = case.geometry(DEVICE_PAGES, HOST_PAGES)
    pools = {
        name: [(pool.name, pool.layers) for pool in case.model.pools_of(name)]
        for name in case.model.components
    }
    ways = [(name, way) for way in Direction for name in case.model.components]
    with (
        probe.make(geometry, time.perf_counter_ns) as device,
        Samples(device, pools, rate, seed[0]) as samples,
    ):
        each = _Run(case, samples, np.random.default_rng(seed))
        each.start()
        for number in range(sets):
            each.copy_set(*ways[number % len(ways)])
            done(number + 1)
        each.outcome.samples = samples.report()
        return each.outcome


def _draw_pages(draw: Generator, capacity: int, count: int) -> Pages:
    """Different random pages; in one of three cases a run of consecutive pages."""
    if draw.integers(3):
        return draw.permutation(capacity)[:count]
    first = int(draw.integers(capacity - count + 1))
    return np.arange(first, first + count)


def _finish(device: Inspectable, stream: Stream) -> None:
    mark = device.record(stream)
    while not device.query(mark):
        time.sleep(0)
