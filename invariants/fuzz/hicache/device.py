"""The devices of a sequence: a simulated one that follows plans, and one with real bytes behind it.

The simulated device decides what happens when, so a sequence means the same on every device. The
real one gets every call, too, except copies that the sequence lets fail. Each page has a tag: that
of the prefix that it holds, or of the write. The bytes of every page that is copied or read, and of
every page at rest, must be those that its tag determines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

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
    Inspectable,
    Mark,
    Stream,
    Touch,
)
from hicache.memory.layouts import legal
from hicache.memory.pools import contents_of
from hicache.models import ModelDescription, mha
from hicache.runtime.controller import COMPUTE, WRITE
from sim.clock import Clock
from sim.content import Words
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.errors import WrongBytesError

_LANES = {Tier.DEVICE: COMPUTE, Tier.HOST: WRITE}  # the stream that looks at a tier at rest


# The clock, the link, bytes of a page in each layer group by component, and the simulated bytes.
Parts: TypeAlias = tuple[Clock, Link, dict[str, tuple[int, ...]], Memory]


class Plan(NamedTuple):
    """What the next work on a stream does. stall: delay before it starts. lag: time until the host
    sees its end. parts: chunks of each copy. failing: the copy that fails, -1 for none."""

    stall: int = 0
    lag: int = 0
    parts: int = 1
    failing: int = -1


class PlannedDevice(SimDevice):
    """A simulated device that follows plans instead of draws."""

    def __init__(self, parts: Parts) -> None:
        self.lost: set[int] = set()  # copies that fail
        clock, link, sizes, memory = parts
        options = SimDeviceOptions(sizes, faults=lambda copy, _: copy in self.lost, scribble=False)
        super().__init__(clock, link, options, memory)
        self.bytes = memory
        self.plans: dict[Stream, Plan] = {}
        self.sent: dict[Stream, int] = {}  # copies issued under the present plan
        self._lags: dict[int, int] = {}
        self._cut: dict[int, int] = {}  # by copy, its parts

    def plan(self, stream: Stream, plan: Plan) -> None:
        """Sets the plan of a stream from now on."""
        self.plans[stream], self.sent[stream] = plan, 0

    def record(self, stream: Stream) -> Mark:
        self._lags[self._marks.following] = self.plans.get(stream, Plan()).lag
        return super().record(stream)

    def copy(self, stream: Stream, job: CopyJob) -> None:
        plan, turn = self.plans.get(stream, Plan()), self.sent.get(stream, 0)
        if turn == 0 and plan.stall:
            self.compute(stream, plan.stall)
        if turn == plan.failing:
            self.lost.add(self._copies)
        self._cut[self._copies] = plan.parts
        self.sent[stream] = turn + 1
        super().copy(stream, job)

    def _lag_ns(self, line: object, mark: int) -> int:
        return self._lags[mark]

    def _parts(self, number: int) -> int:
        return self._cut[number]

    def check_at_rest(self) -> None:
        """Compares the bytes of a real device, where there is one. Nothing may be under way."""

    def close(self) -> None:
        """Ends a real device, where there is one."""


class Real(Inspectable, Protocol):
    """A device with real bytes that can be waited for."""

    def synchronize(self, mark: Mark) -> None: ...

    def close(self) -> None: ...


class MirroredDevice(PlannedDevice):
    """A planned device whose calls a real one carries out, too. The host sees a mark when the
    simulated device shows it and the real one has reached it. compared: looks at real bytes."""

    def __init__(self, parts: Parts, name: str, config: Config, seed: int) -> None:
        """seed: chooses the layout of host memory, and the way to copy. Raises CallerError if the
        real device is not there or its memory is too small."""
        super().__init__(parts)
        model = _model(config, self.layers)
        layout, backend = legal()[seed % len(legal())]
        options = DeviceOptions(layout=layout, io_backend=backend)
        self._name, self._real = name, _open(name, model, config, options)
        self._pools = contents_of(model, config.page_size)
        self._real_marks: list[Mark] = []
        self._unseen: set[Mark] = set()
        self._wrong: list[WrongBytesError] = []
        self.compared = 0

    def stream(self, name: str) -> Stream:
        stream = super().stream(name)
        assert stream == self._real.stream(name), "both devices number streams in the same order"
        return stream

    def record(self, stream: Stream) -> Mark:
        mark = super().record(stream)
        self._real_marks.append(self._real.record(stream))
        self._unseen.add(mark)
        return mark

    def wait(self, stream: Stream, mark: Mark) -> None:
        super().wait(stream, mark)
        self._real.wait(stream, self._real_marks[mark])

    def query(self, mark: Mark) -> bool:
        """Raises WrongBytesError if a look at the real bytes found others."""
        seen = super().query(mark)
        if seen and mark in self._unseen:
            self._unseen.remove(mark)
            self._real.synchronize(self._real_marks[mark])
        if self._wrong:
            raise self._wrong[0]
        return seen

    def copy(self, stream: Stream, job: CopyJob) -> None:
        number = self._copies
        tags = self.bytes.claimed(job.near.place, job.source, job.layers)
        super().copy(stream, job)
        if len(job.source) and number not in self.lost:
            self._real.copy(stream, job)
            self._look(stream, job.far, tags, job.why)

    def verify(
        self, stream: Stream, touch: Touch, tags: Words, unless: tuple[Mark, ...] = ()
    ) -> None:
        super().verify(stream, touch, tags, unless)
        self._look(stream, touch.area, tags, touch.why)

    def check_at_rest(self) -> None:
        """Compares every page that holds what was last written to it."""
        for tier, component in self.bytes.places:
            stream, pages = self.stream(_LANES[tier]), self.bytes.settled((tier, component))
            tags = self.bytes.claimed((tier, component), pages, (0, self.layers))
            area = Area(tier, component, pages, (0, self.layers))
            self._look(stream, area, tags, "a look at all pages at rest")
            self._real.synchronize(self._real.record(stream))
        if self._wrong:
            raise self._wrong[0]

    def close(self) -> None:
        self._real.close()

    def _write(self, memory: Memory, stream: Stream, area: Area, tags: Words, why: str) -> None:
        super()._write(memory, stream, area, tags, why)
        if len(area.pages):
            self._real.scribble(stream, area, tags)

    def _look(self, stream: Stream, area: Area, tags: Words, why: str) -> None:
        """Queues a comparison with what the tags say, uint64[layers, pages] or uint64[pages]."""
        (first, last), count = area.layers, len(area.pages)
        wide = np.broadcast_to(tags, (last - first, count)).copy()

        def compare(blocks: tuple[Bytes, ...]) -> None:  # called on any thread
            for number, (plan, block) in enumerate(
                zip(self._pools[area.component], blocks, strict=True)
            ):
                for own, held in zip(plan.layers_in(first, last), block, strict=True):
                    layer = plan.pool.layers[own]
                    row = wide[layer - first]
                    wanted = plan.stamped(row, number, range(own, own + 1))[0]
                    for slot in range(count) if not np.array_equal(held, wanted) else ():
                        if (held[slot] != wanted[slot]).any():
                            where = f"{plan.pool.name}, layer {layer}"
                            self._wrong.append(self._error(area, slot, where, int(row[slot]), why))
            self.compared += 1

        if count:
            self._real.peek(stream, area, compare)

    def _error(self, area: Area, slot: int, where: str, tag: int, why: str) -> WrongBytesError:
        page = int(area.pages[slot])
        return WrongBytesError(
            f"{self._name} device, {why}: {area.tier.name.lower()} page {page} of {where}: "
            f"expected {self.bytes.whose(tag)}, found other bytes",
            f"BYTES on {self._name}",
            About("page", page, int(area.tier), area.component),
        )


def check(name: str) -> None:
    """Raises CallerError if there is no such device here."""
    config = Config(1, (1,), (1,))
    _open(name, _model(config, 1), config, DeviceOptions()).close()


def _open(name: str, model: ModelDescription, config: Config, options: DeviceOptions) -> Real:
    try:
        module = registry.load("hicache.devices", name)
    except ModuleNotFoundError as error:
        raise CallerError(
            f"device {name}: expected the package {error.name}, found none; install it "
            "(in a clone: .venv/bin/pip install -e '.[torch]'), or use --device cpu"
        ) from None
    pages = [
        dict(zip(config.components, counts, strict=True))
        for counts in (config.device_pages, config.host_pages)
    ]
    kind = getattr(module, f"{name.title()}Device")
    real: Real = kind(model, config.page_size, *pages, options)
    return real


def _model(config: Config, layers: int) -> ModelDescription:
    """A made-up model. Every component has a pool in every layer, with the keys of an indexer, and
    the rows of a draft model in the last layer."""
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
    pools = []
    for name in config.components:
        own = replace(plain.pools[0], name=name, component=name)
        if residency(name) == "state":
            own = replace(own, kind="state", parts=("state",), page_rows=1)
        key = replace(own, name=f"{name} key", kind="indexer", parts=("key",), anchor=name)
        key = replace(key, dtype="fp8", scale_group=8, scale_bytes=4)
        draft = replace(own, name=f"{name} draft", layers=own.layers[-1:], anchor=name)
        pools += [own, key, draft]
    return replace(plain, pools=tuple(pools))
