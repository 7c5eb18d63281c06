"""The memory of one sequence: a real device, its controller, and garbage where nothing may be read.

Copies are made by the real controller on a real `CpuDevice`, at their issue or as late as their
reply, as the tape says. Pages that are free, that a copy was to fill but did not, and that a lost
pass had, are overwritten, so that whoever reads them reads garbage. Does not decide what fails or
when; see `hand`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hicache.core.actions import Backup, Load, Outcome, Prefill
from hicache.core.components.base import residency
from hicache.core.config import Config
from hicache.core.events import BackupDone, Event, LoadDone
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from hicache.devices.base import DeviceOptions, Mark
from hicache.devices.cpu import CpuDevice
from hicache.memory.arena import Arena
from hicache.memory.layouts import legal
from hicache.runtime.controller import COMPUTE, LOAD, WRITE, TransferController
from hicache.transformers.describing import Described

# Bytes of garbage: not a number in every type of elements, and numbers near 1 that look like rows.
_GARBAGE = (0xFF, 0x3F)
Copying = Load | Backup


class Memory:
    """moved: flights of copies that are done."""

    def __init__(self, config: Config, described: Described, seed: int) -> None:
        """seed: chooses the layout of host memory and the way to copy."""
        self._config = config
        layout, backend = legal()[seed % len(legal())]
        device, host = (
            dict(zip(config.components, sizes, strict=True))
            for sizes in (config.device_pages, config.host_pages)
        )
        options = DeviceOptions(layout=layout, io_backend=backend)
        self.device = CpuDevice(described.model, config.page_size, device, host, options)
        self.controller = TransferController(self.device)
        self._streams = {kind: self.device.stream(name) for kind, name in _LANES.items()}
        self._positional = [name for name in config.components if residency(name) != "state"]
        self._submitted: set[int] = set()
        self.moved: set[int] = set()
        self._spoiled = seed
        for tier, pages in ((Tier.DEVICE, device), (Tier.HOST, host)):
            for component, count in pages.items():
                self.spoil(tier, component, np.arange(count))

    @property
    def arena(self) -> Arena:
        return self.device.arena

    # -- copies

    def submit(self, action: Copying) -> None:
        """Hands a copy to the controller, once."""
        if action.flight not in self._submitted:
            self._submitted.add(action.flight)
            self.controller.submit(action)

    def start(self) -> None:
        """Starts what was submitted."""
        self.controller.start()

    def start_early(self) -> None:
        """Makes all copies that were submitted."""
        if self.controller.unanswered:
            self.start()
            for kind in (Load, Backup):
                self.wait(kind)

    def finish(self, action: Copying) -> None:
        """Makes a copy, or waits until it is made."""
        self.submit(action)
        self.start()
        if action.flight not in self.moved:
            self.wait(type(action))
            assert action.flight in self.moved, "a lane is in order"

    def wait(self, kind: type[Copying]) -> None:
        """Waits for all copies of a kind that were started."""
        self.device.synchronize(self.device.record(self._streams[kind]))
        for reply in self.controller.poll():
            assert isinstance(reply, LoadDone | BackupDone), "the controller moves pages only"
            self.moved.add(reply.flight)

    def fail(self, action: Copying, arrives: Callable[[int, int], bool]) -> None:
        """Ends a copy that fails. arrives: see `Fault.arrives`; other targets are garbage."""
        here, there = (Tier.HOST, Tier.DEVICE)[:: 1 if isinstance(action, Load) else -1]
        layers = (0, self.device.layers)
        for copy in action.copies:
            count = len(copy.source)
            some = np.array([arrives(at, count) for at in range(count)], dtype=bool)
            self.spoil(there, copy.component, copy.target[~some])
            if some.any():
                source, target = (here, copy.source[some]), (there, copy.target[some])
                self.arena.copy(copy.component, source, target, layers)

    def arriving(self, flights: Sequence[int]) -> Callable[[int], None]:
        """What waits for a layer of loads that were started."""
        marks: list[tuple[Mark, ...]] = [self.controller.load_marks(one) for one in flights]

        def arrive(layer: int) -> None:
            for of_layers in marks:
                if of_layers:
                    self.device.synchronize(of_layers[layer])

        return arrive

    # -- garbage

    def spoil(self, tier: Tier, component: str, pages: Pages) -> None:
        """Overwrites pages with garbage."""
        if not len(pages):
            return
        self._spoiled += 1
        value = _GARBAGE[self._spoiled % len(_GARBAGE)]
        for pool in self.arena.pools(tier, component):
            pool.view[:, pages] = value

    def spoil_pass(self, action: Prefill) -> None:
        """Overwrites what a pass would have written."""
        size = self._config.page_size
        if action.end_token > action.start_token:
            first, end = action.start_token // size, -(-action.end_token // size)
            for component, table in zip(self._positional, action.tables, strict=True):
                pages = np.asarray(table[first:end], dtype=np.int64)
                self.spoil(Tier.DEVICE, component, pages[pages >= 0])
        for slots in action.states:
            written = [slots.working, *(page for _, page in slots.checkpoints)]
            self.spoil(Tier.DEVICE, slots.component, np.array(written))

    def close(self) -> None:
        self.device.close()


_LANES: dict[type[object], str] = {Prefill: COMPUTE, Load: LOAD, Backup: WRITE}


class FreedPages:
    """An observer that overwrites the pages that the core has freed."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: dict[tuple[Tier, str], Pages] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: pages are freed only with the outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for tier in (Tier.DEVICE, Tier.HOST):
            for index, component in enumerate(view.config.components):
                generation = view.pool(tier, index).generation
                known = self._known.get((tier, component))
                if known is None or not np.array_equal(generation, known):
                    if known is not None:
                        freed = np.flatnonzero(generation != known)
                        self._memory.spoil(tier, component, freed)
                    self._known[tier, component] = generation.copy()
