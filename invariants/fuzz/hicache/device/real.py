"""A device with real bytes behind the simulated one: every call is carried out on both.

Lives here: the device of one sequence, the comparison of what it holds, and its model. The
simulated device decides what happens when, so a tape means the same on every device. A copy that
the tape lets fail is not made. The host sees a mark when the simulated device shows it and the
real one has reached it. Does not issue work (see hand) or define devices (see hicache/devices).

Each page has a tag: that of the prefix that it holds, or of the write. The bytes of every page
that is copied or read, and of every page at rest, must be those that its tag determines.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from hicache import registry
from hicache.core.components.base import residency
from hicache.core.config import Config
from hicache.core.errors import About, CallerError
from hicache.core.types import Tier
from hicache.devices.base import (
    Area,
    Bytes,
    CopyJob,
    DeviceOptions,
    Holdable,
    Mark,
    Peeker,
    Stream,
    Touch,
)
from hicache.memory.layouts import legal
from hicache.memory.pools import PoolPlan, contents_of
from hicache.models import ModelDescription, PoolDescription, mha
from hicache.runtime.controller import COMPUTE, WRITE
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.device.planned import PlannedDevice
from sim.clock import Clock
from sim.content import Words
from sim.device.link import Link
from sim.device.memory import Memory
from sim.errors import WrongBytesError

_DEVICES = "hicache.devices"
_LANES = {Tier.DEVICE: COMPUTE, Tier.HOST: WRITE}  # the stream that looks at a tier at rest


class Real(Holdable, Protocol):
    """A device with real bytes that can be waited for."""

    def synchronize(self, mark: Mark) -> None:
        """Blocks until the mark is reached."""

    def close(self) -> None:
        """Waits for all work, and frees the memory."""


class _Wrong(NamedTuple):
    """A page that does not hold the bytes of its tag. found: its bytes in one layer of a pool."""

    layer: int
    slot: int
    plan: PoolPlan
    number: int
    found: Bytes


class _Look:
    """A comparison that the device makes when it gets there. tags: uint64[layers, pages].

    unless: marks of loads; if one has failed, the pages hold anything.
    """

    __slots__ = ("area", "done", "plans", "tags", "unless", "why", "wrong")

    def __init__(
        self,
        area: Area,
        tags: Words,
        plans: tuple[PoolPlan, ...],
        why: str,
        unless: tuple[Mark, ...],
    ) -> None:
        self.area, self.tags, self.plans, self.why = area, tags, plans, why
        self.unless = unless
        self.done = False
        self.wrong: _Wrong | None = None

    def compare(self, blocks: tuple[Bytes, ...]) -> None:
        """Called with the bytes, on any thread."""
        first, last = self.area.layers
        for number, (plan, block) in enumerate(zip(self.plans, blocks, strict=True)):
            for own, found in zip(plan.layers_in(first, last), block, strict=True):
                layer = plan.pool.layers[own]
                tags = self.tags[layer - first]
                expected = plan.stamped(tags, number, range(own, own + 1))[0]
                if self.wrong is None and not np.array_equal(found, expected):
                    pages = range(len(tags))
                    slot = next(at for at in pages if (found[at] != expected[at]).any())
                    self.wrong = _Wrong(layer, slot, plan, number, found[slot].copy())
        self.done = True


class MirroredDevice(PlannedDevice):
    """A planned device that carries out every call on a real one, too. compared: looks judged."""

    def __init__(
        self,
        clock: Clock,
        link: Link,
        sizes: dict[str, tuple[int, ...]],
        memory: Memory,
        real: Real,
        plans: dict[str, tuple[PoolPlan, ...]],
        name: str,
    ) -> None:
        super().__init__(clock, link, sizes, memory)
        self._bytes = memory
        self._real = real
        self._plans_of = plans
        self._kind = name
        self._real_marks: list[Mark] = []
        self._looks: dict[Stream, list[_Look]] = {}
        self._unseen: dict[Stream, deque[tuple[Mark, list[_Look]]]] = {}
        self._stream_of: dict[Mark, Stream] = {}
        self.compared = 0

    def stream(self, name: str) -> Stream:
        found = super().stream(name)
        other = self._real.stream(name)
        assert found == other, "both devices number their streams in the same order"
        return found

    def record(self, stream: Stream) -> Mark:
        mark = super().record(stream)
        self._real_marks.append(self._real.record(stream))
        self._unseen.setdefault(stream, deque()).append((mark, self._looks.pop(stream, [])))
        self._stream_of[mark] = stream
        return mark

    def wait(self, stream: Stream, mark: Mark) -> None:
        super().wait(stream, mark)
        self._real.wait(stream, self._real_marks[mark])

    def query(self, mark: Mark) -> bool:
        seen = super().query(mark)
        stream = self._stream_of.pop(mark, None) if seen else None
        if stream is not None:
            self._real.synchronize(self._real_marks[mark])
            unseen = self._unseen[stream]
            while unseen and unseen[0][0] <= mark:
                self._judge(unseen.popleft()[1])
        return seen

    def copy(self, stream: Stream, job: CopyJob) -> None:
        number = self._copies
        tags = self._bytes.claimed(job.near.place, job.source, job.layers)
        super().copy(stream, job)
        if len(job.source) and number not in self._lost:
            self._real.copy(stream, job)
            self._look(stream, job.far, tags, job.why)

    def verify(
        self, stream: Stream, touch: Touch, tags: Words, unless: tuple[Mark, ...] = ()
    ) -> None:
        super().verify(stream, touch, tags, unless)
        self._look(stream, touch.area, tags, touch.why, unless)

    def peek(self, stream: Stream, area: Area, then: Peeker) -> None:
        super().peek(stream, area, then)
        tags = self._bytes.claimed(area.place, area.pages, area.layers)
        self._look(stream, area, tags, "a look at free pages")

    def check_at_rest(self) -> None:
        """Compares every page that holds what was last written to it. Nothing may be under way.

        Raises WrongBytesError.
        """
        for place in self._bytes.places:
            pages = self._bytes.settled(place)
            area = Area(*place, pages, (0, self.layers))
            tags = self._bytes.claimed(place, pages, area.layers)
            self._look(self.stream(_LANES[place[0]]), area, tags, "a look at all pages at rest")
        for stream in dict.fromkeys((*self._unseen, *self._looks)):
            self._real.synchronize(self._real.record(stream))
            for _, looks in self._unseen.pop(stream, ()):
                self._judge(looks)
            self._judge(self._looks.pop(stream, []))

    def close(self) -> None:
        self._real.close()

    def _write(self, memory: Memory, stream: Stream, area: Area, tags: Words, why: str) -> None:
        super()._write(memory, stream, area, tags, why)
        if len(area.pages):
            self._real.scribble(stream, area, tags)

    def _look(
        self, stream: Stream, area: Area, tags: Words, why: str, unless: tuple[Mark, ...] = ()
    ) -> None:
        count = len(area.pages)
        if not count:
            return
        wide = np.broadcast_to(tags, (area.layers[1] - area.layers[0], count))
        look = _Look(area, wide, self._plans_of[area.component], why, unless)
        self._looks.setdefault(stream, []).append(look)
        self._real.peek(stream, area, look.compare)

    def _judge(self, looks: list[_Look]) -> None:
        """Raises WrongBytesError for the first page with other bytes than it must have."""
        for look in looks:
            assert look.done, "a look ends before a later mark of its stream"
            self.compared += 1
            if look.wrong is not None and not any(mark in self._failed for mark in look.unless):
                raise self._error(look, look.wrong)

    def _error(self, look: _Look, wrong: _Wrong) -> WrongBytesError:
        area = look.area
        page = int(area.pages[wrong.slot])
        expected = int(look.tags[wrong.layer - area.layers[0], wrong.slot])
        return WrongBytesError(
            f"{self._kind} device, {look.why}: {area.tier.name.lower()} page {page} of "
            f"{wrong.plan.pool.name}, layer {wrong.layer}: expected {self._bytes.whose(expected)}, "
            f"found {self._holder(area, wrong)}",
            f"BYTES on {self._kind}",
            About("page", page, int(area.tier), area.component),
        )

    def _holder(self, area: Area, wrong: _Wrong) -> str:
        """Says whose bytes were found: the content of some page, or none."""
        layers = wrong.plan.layers_in(wrong.layer, wrong.layer + 1)
        for tag in self._bytes.tags_of(area.component):
            stamped = wrong.plan.stamped(np.array([tag], dtype=np.uint64), wrong.number, layers)
            if np.array_equal(stamped[0, 0], wrong.found):
                return self._bytes.whose(int(tag))
        return "bytes of no single page"


def mirrored(
    name: str,
    clock: Clock,
    link: Link,
    sizes: dict[str, tuple[int, ...]],
    memory: Memory,
    config: Config,
    seed: int,
) -> MirroredDevice:
    """Makes both devices. seed: chooses the layout of host memory, the way to copy, and sidecars.

    Raises CallerError if the real device is not there or its memory is too small.
    """
    model = _model(config, memory.layers, seed)
    layout, backend = legal()[seed % len(legal())]
    options = DeviceOptions(layout=layout, io_backend=backend)
    pages = [
        dict(zip(config.components, counts, strict=True))
        for counts in (config.device_pages, config.host_pages)
    ]
    real = _make(name, model, config.page_size, pages[0], pages[1], options)
    return MirroredDevice(
        clock, link, sizes, memory, real, contents_of(model, config.page_size), name
    )


def check(name: str) -> None:
    """Raises CallerError if there is no such device here."""
    config = Config(1, (1,), (1,))
    _make(name, _model(config, 1, 0), 1, {"full": 1}, {"full": 1}, DeviceOptions()).close()


def _make(
    name: str,
    model: ModelDescription,
    page_size: int,
    device_pages: dict[str, int],
    host_pages: dict[str, int],
    options: DeviceOptions,
) -> Real:
    try:
        module = registry.load(_DEVICES, name)
    except ModuleNotFoundError as error:
        raise CallerError(
            f"device {name}: expected the package {error.name}, found none; install it "
            "(in a clone: .venv/bin/pip install -e '.[torch]'), or use --device cpu"
        ) from None
    made: Real = getattr(module, f"{name.title()}Device")(
        model, page_size, device_pages, host_pages, options
    )
    return made


def _model(config: Config, layers: int, seed: int) -> ModelDescription:
    """A made-up model. Every component has a pool in every layer, with rows of 16 bytes, and the
    sidecars that the seed chooses."""
    plain = mha.describe(
        "fuzz",
        "made up: small pools for each component",
        layers=layers,
        hidden_size=8,
        vocabulary=8,
        attention_heads=1,
        kv_heads=1,
        head_elements=8,
        parameters=10_000,
    )
    kv, draws = plain.pools[0], Draws(seed, "sidecars")
    pools: list[PoolDescription] = []
    for name in config.components:
        own = replace(kv, name=name, component=name)
        if residency(name) == "state":
            own = replace(own, kind="state", parts=("state",), page_rows=1)
        pools += draws.one(_POOLS)(own)
    return replace(plain, pools=tuple(pools))


def _alone(own: PoolDescription) -> tuple[PoolDescription, ...]:
    return (own,)


def _indexed(own: PoolDescription) -> tuple[PoolDescription, ...]:
    """With the keys of an indexer, and a draft model's rows in the last layer."""
    key = replace(own, name=f"{own.name} key", kind="indexer", parts=("key",), anchor=own.name)
    key = replace(key, dtype="fp8", scale_group=8, scale_bytes=4)
    return own, key, replace(own, name=f"{own.name} draft", layers=own.layers[-1:], anchor=own.name)


def _compressed(own: PoolDescription) -> tuple[PoolDescription, ...]:
    """Page numbers alone, and rows that the tokens of a page share: some layers have one kind of
    them, some the other."""
    whole = PoolDescription(own.name, own.component, "logical", (), (), 1, 0)
    rows = replace(own, kind="latent", parts=("latent",), page_rows=1, anchor=own.name)
    few = replace(rows, name=f"{own.name} few", layers=own.layers[::2], tail_bytes=2)
    return whole, few, replace(rows, name=f"{own.name} many", layers=own.layers[1::2])


_POOLS = (_alone, _indexed, _compressed)
