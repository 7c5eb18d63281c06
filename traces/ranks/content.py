"""The bytes of a replay on a real device: each pass writes its pages, and compares what it reuses.

A page holds what follows from the tokens up to its end and from the rank, so a page of another
prefix, of another rank, or that was never copied, is found when a pass reads it. Observes a driver
whose loads have ended when it reports that a pass is done, as in a replay without a clock. Does not
compute which pages a pass reads (sim/engine/accesses) or compare bytes (traces/devices).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from hicache.core.actions import Outcome, Prefill, Released
from hicache.core.config import Config
from hicache.core.events import Arrived, Event, PrefillDone, Retracted
from hicache.core.types import FlightId, Key, RequestId
from hicache.core.view import CoreView
from hicache.devices.cpu import CpuDevice
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE
from hicache.runtime.storage.pages import Rank
from sim.content import Words, mix, partial_tag, prefix_tags
from sim.engine.accesses import Access, Accesses
from sim.errors import WrongBytesError

from ..devices.device_run import StandIn
from ..devices.recording_on_sim import Holdings


class Content:
    """See the module. compared: pages that were read and compared."""

    def __init__(
        self,
        device: CpuDevice,
        model: ModelDescription,
        config: Config,
        rank: Rank,
        accesses: Accesses,
        whole_key: Callable[[RequestId], Key],
    ) -> None:
        """model: with the layers that the device has. whole_key: of a request with all that it
        generates."""
        self._device, self._layers = device, (0, device.layers)
        self._stream = device.stream(COMPUTE)
        self._stand_in = StandIn(device, model, config.page_size, rank.ranks)
        self._size = config.page_size
        self._accesses = accesses
        self._holdings = Holdings(accesses)
        self._own = mix(np.array([rank.stage * rank.ranks + rank.rank], dtype=np.uint64))
        self._whole_key = whole_key
        self._tags: dict[RequestId, Words] = {}
        self._passes: dict[FlightId, Prefill] = {}
        self.compared = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        """The pass whose end is reported, or the decode steps since the last event."""
        if isinstance(event, Arrived | Retracted):
            self._tags[event.request] = prefix_tags(event.key)
        if decoded := self._holdings.decoded(event):
            request = event.request  # type: ignore[union-attr]
            self._tags[request] = prefix_tags(self._whole_key(request))
            self._perform(request, decoded, f"decode of request {request}")
        if isinstance(event, PrefillDone):
            self._compute(self._passes.pop(event.flight))

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            self._holdings.note(outcome)
            if isinstance(outcome, Prefill):
                self._passes[outcome.flight] = outcome
            elif isinstance(outcome, Released):
                self._tags.pop(outcome.request, None)

    def _compute(self, prefill: Prefill) -> None:
        request, start = prefill.request, prefill.start_token
        why = f"prefill of request {request} at token {start}"
        # a page that was hit and is not full counts as a full one, to windows as well
        whole = prefill._replace(start_token=-(-start // self._size) * self._size)
        for access in self._accesses.first(whole):
            held = access._replace(depths=np.minimum(access.depths, start))
            self._perform(request, [held], why)
        self._perform(request, self._accesses.last(prefill), why)

    def _perform(self, request: RequestId, accesses: Iterable[Access], why: str) -> None:
        """Read and write, to the end. Raises WrongBytesError for a page with other bytes."""
        for access in accesses:
            touch, tags = access.touch(self._layers, why), self._tags_of(request, access)
            if access.mode == "r":
                self.compared += len(access.pages)
                self._stand_in.verify(self._stream, touch, tags)
            else:
                self._stand_in.publish(self._stream, touch, tags)
        self._device.synchronize(self._device.record(self._stream))
        wrong = self._stand_in.wrong(self._device)
        if wrong is not None:
            raise WrongBytesError(wrong)

    def _tags_of(self, request: RequestId, access: Access) -> Words:
        """What each page holds. A last page that the trace does not identify is this request's."""
        tags, places = self._tags[request], -(-access.depths // self._size) - 1
        known = places < len(tags)
        found = tags[np.where(known, places, 0)] if len(tags) else np.zeros(len(places), np.uint64)
        for at in np.flatnonzero(~known):
            found[at] = partial_tag(request, int(access.depths[at]))[0]
        mine: Words = found ^ self._own
        return mine
