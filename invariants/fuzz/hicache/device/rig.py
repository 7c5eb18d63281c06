"""The simulated device of a sequence, without random draws of its own.

Lives here: the parts of a sequence's machine (clock, link, bytes, detector, shadow, the real
controller, the passes of a model). Does not issue work or handle replies (see hand).
"""

from __future__ import annotations

from collections import abc, deque
from collections.abc import Callable

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.radix.node import Node
from hicache.core.types import FlightId, Pages, Tier
from hicache.core.view import CoreView
from hicache.devices.base import Mark, Stream, Touch
from hicache.runtime.controller import ControllerOptions, TransferController
from invariants.fuzz.hicache.device.planned import PlannedDevice
from invariants.fuzz.hicache.device.real import mirrored
from invariants.fuzz.hicache.executors import DeviceSettings
from sim.clock import Clock
from sim.content import Words
from sim.device.hazards import Hazards
from sim.device.link import Link
from sim.device.memory import Memory, Place
from sim.device.shadow import FreedPages, Shadow
from sim.engine.accesses import Accesses
from sim.engine.forward import Forward
from sim.errors import WrongBytesError

RATE = 10**9  # one byte per nanosecond, so a page's bytes equal its nanoseconds


class Passes:
    """The model of a sequence. layer: nanoseconds per layer. The host polls for the end of passes.

    failing: the pass that is launched and is going to fail, or 0. It writes unique bytes. rubbish:
    their tags, and the pass of each. unread: its load fails, so what it reads is not compared.
    """

    def __init__(self, device: PlannedDevice, memory: Memory, layers: int) -> None:
        self.layers = layers
        self.layer = 0
        self.failing: FlightId = 0
        self.rubbish: dict[int, FlightId] = {}
        self.unread = False
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
        if self.failing:
            tags = self._memory.scribble_tags(touch.pages)
            self.rubbish |= dict.fromkeys(tags.tolist(), self.failing)
        self._device.publish(stream, touch, tags)

    def verify(
        self, stream: Stream, touch: Touch, tags: Words, unless: tuple[Mark, ...] = ()
    ) -> None:
        if self.failing:  # after another of its request that fails, it reads what that one wrote
            area = touch.area
            held = self._memory.claimed(area.place, area.pages, area.layers)
            tags = np.where(np.isin(held, list(self.rubbish)), held, tags)
        if not self.unread:
            self._device.verify(stream, touch, tags, unless)

    def sync(self, mark: Mark, action: Callable[[], None]) -> None:
        """Registers the end of a pass; `poll` calls the actions in order."""
        self._open.append((mark, action))

    def poll(self) -> None:
        """Ends every pass whose end the host can see."""
        while self._open and self._device.query(self._open[0][0]):
            self._open.popleft()[1]()


class FailedPasses:
    """An observer that looks for bytes of passes that fail in what the tree takes over."""

    def __init__(self, passes: Passes, memory: Memory) -> None:
        self._passes = passes
        self._memory = memory

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: the tree changes only with the outcomes."""

    def on_outcomes(self, event: Event, outcomes: abc.Sequence[Outcome], view: CoreView) -> None:
        rubbish = self._passes.rubbish
        for node in view.touched.values() if rubbish else ():
            for tier in (Tier.DEVICE, Tier.HOST):
                for name, pages in zip(view.config.components, node.pages[tier], strict=True):
                    if pages is not None:
                        self._check(node, (tier, name), pages)

    def _check(self, node: Node, place: Place, pages: Pages) -> None:
        tags = self._memory.claimed(place, pages, (0, self._memory.layers))
        for page, tag in zip(pages.tolist() * len(tags), tags.ravel().tolist(), strict=True):
            flight = self._passes.rubbish.get(tag)
            if flight is not None:
                tier, name = place
                raise WrongBytesError(
                    f"node {node.id}: expected pages of passes that succeed, found what pass "
                    f"{flight}, which fails, wrote to {tier.name.lower()} page {page} of {name}",
                    "BYTES of a failed pass",
                    About("page", page, int(tier), name),
                    About("flight", flight),
                    About("node", node.id),
                )


class Rig:
    """The machine of one sequence."""

    def __init__(
        self,
        config: Config,
        settings: DeviceSettings,
        view: CoreView,
        real: str = "",
        seed: int = 0,
    ) -> None:
        """real: name of the device with real bytes, if there is one. seed: see `mirrored`."""
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
        self.device = (
            mirrored(real, self.clock, link, pages, self.memory, config, seed)
            if real
            else PlannedDevice(self.clock, link, pages, self.memory)
        )
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
        self.observers = (FreedPages(self.shadow), FailedPasses(self.passes, self.memory))
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
