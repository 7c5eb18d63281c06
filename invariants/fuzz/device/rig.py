"""The simulated device of a sequence, without random draws of its own.

Lives here: the parts of a sequence's machine (clock, link, bytes, detector, shadow, the real
controller, the passes of a model), and a device that follows plans. Does not issue work or handle
replies (see hand).
"""

from __future__ import annotations

from collections import abc, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hicache.core.config import Config
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.devices.base import CopyJob, Mark, Stream, Touch
from hicache.runtime.controller import ControllerOptions, TransferController
from sim.clock import Clock
from sim.content import Words
from sim.device.hazards import Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.shadow import FreedPages, Shadow
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.engine.accesses import Accesses
from sim.engine.forward import Forward

from ..executors import DeviceSettings

RATE = 10**9  # one byte per nanosecond, so a page's bytes equal its nanoseconds


class Plan(NamedTuple):
    """The plan for the next work that is issued on a stream.

    stall: delay before it starts. pause: delay of each chunk of a copy, besides the time on the
    link. lag: time until the host sees its end. parts: chunks of each copy. failing: the copy that
    fails, -1 for none.
    """

    stall: int = 0
    pause: int = 0
    lag: int = 0
    parts: int = 1
    failing: int = -1


PLAIN = Plan()


class PlannedDevice(SimDevice):
    """A device that follows plans instead of random draws.

    moving: by target tier of a running copy, the number of arrived chunks. late: how often the host
    asked for a mark that was reached but not visible yet.
    """

    def __init__(self, clock: Clock, link: Link, sizes: dict[str, tuple[int, ...]], memory: Memory):
        options = SimDeviceOptions(sizes, faults=lambda copy, _: copy in self._lost, scribble=False)
        super().__init__(clock, link, options, memory)
        self.moving: dict[Tier, int] = {}
        self.late = 0
        self._plans: dict[Stream, Plan] = {}
        self._sent: dict[Stream, int] = {}
        self._lags: dict[int, int] = {}
        self._cut: dict[int, tuple[int, int]] = {}  # by copy: (parts, pause)
        self._pause: dict[str, int] = {}  # by stream: pause of the running copy
        self._lost: dict[int, None] = {}

    def plan(self, stream: Stream, plan: Plan) -> None:
        """Sets the plan of a stream from now on."""
        self._plans[stream], self._sent[stream] = plan, 0

    def sent(self, stream: Stream) -> int:
        """Number of copies issued under the present plan."""
        return self._sent.get(stream, 0)

    def record(self, stream: Stream) -> Mark:
        self._lags[len(self._reached)] = self._plans.get(stream, PLAIN).lag
        return super().record(stream)

    def query(self, mark: Mark) -> bool:
        seen = super().query(mark)
        self.late += not seen and self._reached[mark] >= 0
        return seen

    def copy(self, stream: Stream, job: CopyJob) -> None:
        plan, turn = self._plans.get(stream, PLAIN), self.sent(stream)
        if turn == 0 and plan.stall:
            self.compute(stream, plan.stall)
        if turn == plan.failing:
            self._lost[self._copies] = None
        self._cut[self._copies] = plan.parts, plan.pause
        self._sent[stream] = turn + 1
        super().copy(stream, job)

    def _lag_ns(self, line: object, mark: int) -> int:
        return self._lags[mark]

    def _parts(self, number: int) -> int:
        return self._cut[number][0]

    def _send(self, line: Any, copy: Any, number: int, size: int) -> None:
        self._pause[line.name] = self._cut[number][1]
        super()._send(line, copy, number, size)

    def _chunk(self, line: Any, copy: Any, bounds: list[int], part: int) -> None:
        arrive = super()._chunk
        delay = (part + 1) * self._pause[line.name]
        if delay:
            self._clock.after(delay, lambda: arrive(line, copy, bounds, part))
        else:
            arrive(line, copy, bounds, part)

    def _read(self, copy: Any, bounds: list[int], part: int) -> None:
        self.moving[copy.far[0]] = part
        super()._read(copy, bounds, part)

    def _store(self, copy: Any, bounds: list[int], part: int) -> None:
        super()._store(copy, bounds, part)
        if part + 2 == len(bounds):
            del self.moving[copy.far[0]]


class Passes:
    """The model of a sequence. layer: nanoseconds per layer. The host polls for the end of passes.

    rubbish: passes write unique bytes, because they are going to fail.
    """

    def __init__(self, device: PlannedDevice, memory: Memory, layers: int) -> None:
        self.layers = layers
        self.layer = 0
        self.rubbish = False
        self._device = device
        self._memory = memory
        self._open: deque[tuple[Mark, Callable[[], None]]] = deque()

    def layer_ns(
        self, chunks: abc.Sequence[tuple[int, int]], decoding: int, context: int, /
    ) -> int:
        return self.layer

    def overhead_ns(self, chunks: abc.Sequence[tuple[int, int]], decoding: int, /) -> int:
        return 0

    def compute(self, stream: Stream, duration_ns: int) -> None:
        if duration_ns:
            self._device.compute(stream, duration_ns)

    def publish(self, stream: Stream, touch: Touch, tags: Words) -> None:
        if self.rubbish:
            tags = self._memory.scribble_tags(touch.pages)
        self._device.publish(stream, touch, tags)

    def verify(
        self, stream: Stream, touch: Touch, tags: Words, unless: tuple[Mark, ...] = ()
    ) -> None:
        self._device.verify(stream, touch, tags, unless)

    def sync(self, mark: Mark, action: Callable[[], None]) -> None:
        """Registers the end of a pass; `poll` calls the actions in order."""
        self._open.append((mark, action))

    def poll(self) -> None:
        """Ends every pass whose end the host can see."""
        while self._open and self._device.query(self._open[0][0]):
            self._open.popleft()[1]()


class Rig:
    """The machine of one sequence."""

    def __init__(self, config: Config, settings: DeviceSettings, view: CoreView) -> None:
        layers = settings.layers
        places = {
            (tier, name): pages
            for tier, sizes in ((Tier.DEVICE, config.device_pages), (Tier.HOST, config.host_pages))
            for name, pages in zip(config.components, sizes, strict=True)
        }
        self.clock = Clock()
        link = Link(self.clock, RATE, RATE * 3 // 2, settings.latency_ns)
        self.memory = Memory(places, layers)
        pages = dict.fromkeys(config.components, (settings.page_ns,) * layers)
        self.device = PlannedDevice(self.clock, link, pages, self.memory)
        self.shadow = Shadow(self.device, Hazards(places, layers))
        self.controller = TransferController(
            self.shadow, ControllerOptions(backup_batches=settings.depth)
        )
        self.passes = Passes(self.device, self.memory, layers)
        self.forward = Forward(
            self.passes,
            self.shadow,
            self.controller,
            self.passes,
            Accesses(config, view.components),
            checked=True,
        )
        self.freed = FreedPages(self.shadow)
        for (tier, name), count in places.items():
            self.shadow.freed(tier, name, np.arange(count, dtype=np.int64))

    def run_to(self, time_ns: int) -> None:
        """Runs all events until this time."""
        clock = self.clock
        if time_ns > clock.now_ns:
            clock.after(time_ns - clock.now_ns, lambda: None)
        while 0 <= clock.next_ns() <= time_ns:
            clock.step()

    def run_dry(self) -> None:
        """Runs all events."""
        while self.clock.next_ns() >= 0:
            self.clock.step()
