"""Runs core, controller and streams on a real device behind a hazard detector.

`drop_each_wait` then repeats the run once for each stream wait, with that wait left out. Contains a
small engine that never waits for a forward pass: it feeds the reply as soon as the pass is issued,
as engines do that prepare the next batch meanwhile, so only streams order the work. Every read is
compared with the content that its prompt requires. Does not schedule (see sim/engine/engine),
define hazards (see sim/device/shadow), or create devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Outcome, Prefill, Refused
from hicache.core.components import settings_for
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.entries import Shape
from hicache.core.events import AdmitWanted, Arrived, ContinueWanted, Event, Finished, PrefillDone
from hicache.core.types import Key, Tier
from hicache.devices.base import Bytes, Inspectable, Mark, Stream, Touch, Words
from hicache.memory.pools import contents_of
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, TransferController
from hicache.runtime.driver import Driver
from sim.device.hazards import Hazards
from sim.device.shadow import FreedPages, Shadow, ShadowOptions
from sim.engine.forward import Access, Accesses
from sim.errors import HazardError, SimError, WrongBytesError

_WHOLE = 1 << 40
_LETTERS = "abc"


class Sizes(NamedTuple):
    """Pool sizes of each component, small so that pages are evicted, loaded and reused.

    Regardless of the model, a window is two pages, and a state is stored at the end of every page.
    """

    model: ModelDescription
    page_size: int
    device_pages: int = 8
    host_pages: int = 14


Maker = Callable[[Sizes], AbstractContextManager[Inspectable]]


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """The results of a run and its repetitions.

    accesses: ordered accesses. spoiled: load targets overwritten first. intact: free pages that
    kept their poison. reads: of whole prefixes. waits: left out one by one. caught: those whose
    loss was detected.
    """

    accesses: int
    spoiled: int
    intact: int
    reads: int
    waits: int
    caught: int


class WithoutWait(Shadow):
    """Leaves out wait number `drop`. waits: the stream of each wait."""

    def __init__(
        self, inner: Inspectable, hazards: Hazards, options: ShadowOptions | None, drop: int
    ) -> None:
        super().__init__(inner, hazards, options)
        self.waits: list[str] = []
        self._drop = drop
        self._names: dict[Stream, str] = {}

    def stream(self, name: str) -> Stream:
        stream = super().stream(name)
        self._names[stream] = name
        return stream

    def wait(self, stream: Stream, mark: Mark) -> None:
        self.waits.append(self._names[stream])
        if len(self.waits) - 1 != self._drop:
            super().wait(stream, mark)


class ShadowRun:
    """One core on one device. wrong: reads that did not find their prefix.

    drop: number of the wait to leave out, -1 for none.
    """

    def __init__(
        self,
        device: Inspectable,
        sizes: Sizes,
        *,
        drop: int = -1,
        options: ShadowOptions | None = None,
    ) -> None:
        model, components = sizes.model, sizes.model.components
        capacity = {Tier.DEVICE: sizes.device_pages, Tier.HOST: sizes.host_pages}
        self._size = sizes.page_size
        self._plans = contents_of(model, sizes.page_size)
        places = {(tier, name): capacity[tier] for name in components for tier in capacity}
        self.hazards = Hazards(places, device.layers)
        self.shadow = WithoutWait(device, self.hazards, options, drop)
        self.controller = TransferController(self.shadow)
        config = Config(
            sizes.page_size,
            (sizes.device_pages,) * len(components),
            (sizes.host_pages,) * len(components),
            components=components,
            settings=settings_for(components, Shape(2 * sizes.page_size)),
        )
        core = Core(config)
        self._accesses = Accesses(config, core.view.components)
        self._driver = Driver(core, self.controller, (FreedPages(self.shadow),))
        self.compute = self.shadow.stream(COMPUTE)
        self.wrong: list[str] = []
        self.reads = 0
        self._requests = 0

    def serve(self, text: str) -> None:
        """Serves one request with one page for each letter. The last page is always computed."""
        number = self._requests
        self._requests += 1
        feed = self._driver.feed
        key = Key.from_tokens(np.repeat(np.array(list(map(ord, text))), self._size), self._size)
        length = len(text) * self._size
        feed(Arrived(number, key, length, len(text) - 1))
        prefill = self._granted(AdmitWanted(number, _WHOLE))
        while True:
            self.controller.start()
            self._launch(prefill, text)
            feed(PrefillDone(prefill.flight))
            self.controller.start()
            if prefill.completes_prompt:
                break
            prefill = self._granted(ContinueWanted(number, _WHOLE))
        feed(Finished(number, key, length))
        self.controller.start()
        self._driver.poll()

    def _granted(self, event: Event) -> Prefill:
        """Feeds the event until it is not refused; returns the prefill."""
        outcomes: list[Outcome] = self._driver.feed(event)
        while any(isinstance(one, Refused) for one in outcomes):
            self.controller.start()
            self._driver.poll()
            outcomes = self._driver.feed(event)
        (prefill,) = (one for one in outcomes if isinstance(one, Prefill))
        return prefill

    def serve_random(self, requests: int, seed: int = 0) -> None:
        """Serves random prompts of three letters, which share prefixes; then calls `finish`."""
        draw = np.random.default_rng(seed)
        for _ in range(requests):
            letters = draw.integers(0, len(_LETTERS), int(draw.integers(2, 6)))
            self.serve("".join(_LETTERS[letter] for letter in letters))
        self.finish()

    def finish(self) -> None:
        """Waits until all transfers and reads have ended, and checks the poison of free pages."""
        while self.controller.unanswered:
            self.controller.start()
            self._driver.poll()
        self.wait_for(*self.shadow.sweep(), self.shadow.record(self.compute))
        self.shadow.check()

    def wait_for(self, *marks: Mark) -> None:
        """Waits until the device has reached the marks."""
        for mark in marks:
            while not self.shadow.query(mark):
                time.sleep(0)

    def _launch(self, prefill: Prefill, text: str) -> None:
        """For each layer: waits for its loads, reads the prefix, writes the rest."""
        why = f"prefill of {text}"
        loads = [self.controller.load_marks(flight) for flight in prefill.after]
        accesses = (*self._accesses.first(prefill), *self._accesses.last(prefill))
        tagged = [(one, self._tags(one, text)) for one in accesses]
        for layer in range(self.shadow.layers):
            span = (layer, layer + 1)
            for marks in loads:
                if marks:
                    self.shadow.wait(self.compute, marks[layer])
            for access, tags in tagged:
                touch = access.touch(span, why)
                self.shadow.touch(self.compute, touch)
                if touch.mode == "r":
                    self._read(touch, tags)
                else:
                    self.shadow.scribble(self.compute, touch.area, tags)

    def _tags(self, access: Access, text: str) -> Words:
        ends = (access.depths // self._size).tolist()
        return np.array([_tag(text[:end]) for end in ends], dtype=np.uint64)

    def _read(self, touch: Touch, tags: Words) -> None:
        def compare(blocks: tuple[Bytes, ...]) -> None:
            self.reads += 1
            plans = self._plans[touch.component]
            for number, (plan, block) in enumerate(zip(plans, blocks, strict=True)):
                expected = plan.stamped(tags, number, plan.layers_in(*touch.layers))
                if not np.array_equal(block, expected):
                    layer = touch.layers[0]
                    self.wrong.append(f"{touch.why}, layer {layer}, pool {plan.pool.name}")

        self.shadow.peek(self.compute, touch.area, compare)


def drop_each_wait(make: Maker, sizes: Sizes, requests: int, seed: int = 0) -> ShadowResult:
    """Runs once with all waits, then once without each wait.

    Raises HazardError or WrongBytesError if the first run fails, and SimError for a wait whose loss
    is not detected.
    """
    with make(sizes) as device:
        run = ShadowRun(device, sizes)
        run.serve_random(requests, seed)
        if run.wrong:
            raise WrongBytesError(run.wrong[0])
        waits = run.shadow.waits
    caught = 0
    for drop in range(len(waits)):
        with make(sizes) as device:
            other = ShadowRun(device, sizes, drop=drop)
            try:
                other.serve_random(requests, seed)
            except HazardError:
                caught += 1
            else:
                # retries depend on the speed of the machine, so this run may have fewer waits
                if len(other.shadow.waits) > drop:
                    raise SimError(
                        f"wait {drop} of {len(waits)}, on stream {waits[drop]}: expected a hazard "
                        f"without it, found none"
                    )
    return ShadowResult(
        run.hazards.checked, run.shadow.spoiled, run.shadow.intact, run.reads, len(waits), caught
    )


def _tag(text: str) -> int:
    """A number for each prefix of at most seven letters."""
    return int.from_bytes(text.encode().rjust(7, b"."), "little")
