"""Runs one forward pass on a device: its time, its waits, and the pages that it reads and writes.

    positional   reads  tokens max(0, start - window + 1) .. start - 1
                 writes tokens start .. end - 1
    a state      reads  `source`, or the request's working slot
                 writes the working slot, and a copy of it per checkpoint

The content of a page depends on its depth: the number of tokens up to its last filled token, or up
to the token of its state. `depths` holds one depth per page.

A pass that reads pages still being loaded runs one layer group at a time and waits only for the
load of that group. The load of later layers then overlaps the compute of earlier ones.

Each stage of a pipeline has a compute stream, on which passes run one after another. A pass begins
on a stage when the stage before has sent it and when the pass before it has left. The time of the
layers is divided by their number; of the rest, and of the host, see `TimeModel` and `_of_stages`.
"""

from collections import abc
from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Prefill
from hicache.core.components import Component
from hicache.core.config import Config
from hicache.core.errors import CoreBug
from hicache.core.types import Pages
from hicache.devices.base import Access, Device, DeviceEvent, Stream
from hicache.models.base import stage_layers
from hicache.runtime.controller import COMPUTE, TransferController, of_stage

from ..content import Words, partial_tag
from ..engine_profiles import PROFILE, EngineProfile
from ..times.base import Chunks, TimeModel
from .sequence import Sequence

_BUFFERS = 2


class PageUse(NamedTuple):
    """Pages of one component that are read ("r") or written ("w"), in order; at least one page.

    why: for messages. state: whether the page holds a state, which each token replaces.
    """

    component: str
    mode: Literal["r", "w"]
    pages: Pages
    depths: NDArray[np.int64]
    why: str
    state: bool = False

    def access(self, layers: tuple[int, int]) -> Access:
        """Returns the access as a device takes it."""
        return Access(self.component, self.pages, self.mode, layers, self.why)


class Accesses:
    """Computes accesses for one core, from its page size and its components."""

    def __init__(self, config: Config, components: abc.Sequence[Component]) -> None:
        self.page_size = config.page_size
        self._tables = tuple(
            # (name, number of tokens that a token attends to, including itself)
            (each.name, each.window_tokens)
            for each in components
            if each.positional
        )

    def first(self, prefill: Prefill) -> list[PageUse]:
        """Accesses before the pass computes: reads of cached pages, and the copy of a state."""
        why = f"prefill of request {prefill.request} at token {prefill.start_token}"
        uses = self._full_reads(prefill.tables, prefill.start_token, why)
        for slots in prefill.states:
            if slots.source >= 0:
                uses.append(_state(slots.component, "r", slots.source, prefill.start_token, why))
                uses.append(_state(slots.component, "w", slots.working, prefill.start_token, why))
            elif prefill.start_token:
                uses.append(_state(slots.component, "r", slots.working, prefill.start_token, why))
        return uses

    def last(self, prefill: Prefill) -> list[PageUse]:
        """Accesses after the pass has computed: its writes."""
        why = f"prefill of request {prefill.request} to token {prefill.end_token}"
        uses = self.moved(prefill.tables, prefill.start_token, prefill.end_token, why)
        for slots in prefill.states:
            if prefill.end_token > prefill.start_token:
                uses.append(_state(slots.component, "w", slots.working, prefill.end_token, why))
            for depth, page in slots.checkpoints:
                if not prefill.start_token < depth <= prefill.end_token:
                    raise CoreBug(f"{why}: a checkpoint at {depth}, outside of the pass")
                uses.append(_state(slots.component, "w", page, depth, why))
        return uses

    def decoded(self, sequence: Sequence, since: int, why: str) -> list[PageUse]:
        """Reads and writes of the decode steps from `since` tokens to those that it has.

        Decoding stores states in two checkpoint slots by turns. Only the last state of each slot
        counts: later steps on the same stream overwrite the earlier ones.
        """
        end = sequence.kv_tokens
        uses = self._full_reads(sequence.tables, since, why)
        uses += self.moved(sequence.tables, since, end, why)
        for slots in sequence.states:
            uses.append(_state(slots.component, "r", slots.working, since, why))
            uses.append(_state(slots.component, "w", slots.working, end, why))
            interval = slots.interval
            newest = end // interval
            for turn in range(max(since // interval, newest - _BUFFERS) + 1, newest + 1):
                page = slots.checkpoint_slots[turn % _BUFFERS]
                if page >= 0:
                    uses.append(_state(slots.component, "w", page, turn * interval, why))
        return uses

    def context_reads(self, sequence: Sequence, why: str) -> list[PageUse]:
        """Reads of all full pages and states that a sequence depends on."""
        end = sequence.kv_tokens
        uses = self._full_reads(sequence.tables, end, why)
        for slots in sequence.states if end else ():
            uses.append(_state(slots.component, "r", slots.working, end, why))
        return uses

    def _full_reads(self, tables: abc.Sequence[Pages], start: int, why: str) -> list[PageUse]:
        """Reads of the full pages that a token at `start` attends to."""
        size, uses = self.page_size, []
        last = start // size
        for (name, window), table in zip(self._tables, tables, strict=True):
            first = max(0, start - window + 1) // size
            if first < last:
                uses.append(self._access(name, "r", table, (first, last), last * size, why))
        return uses

    def moved(
        self,
        tables: abc.Sequence[Pages],
        start: int,
        end: int,
        why: str,
        mode: Literal["r", "w"] = "w",
    ) -> list[PageUse]:
        """Reads or writes of the pages with the tokens from `start` to `end`, the partial ones
        too."""
        if end <= start:
            return []
        span = (start // self.page_size, -(-end // self.page_size))
        return [
            self._access(name, mode, table, span, end, why)
            for (name, _), table in zip(self._tables, tables, strict=True)
        ]

    def _access(
        self,
        name: str,
        mode: Literal["r", "w"],
        table: Pages,
        span: tuple[int, int],
        end: int,
        why: str,
    ) -> PageUse:
        pages = table[span[0] : span[1]]
        if len(pages) != span[1] - span[0] or np.count_nonzero(pages < 0):
            raise CoreBug(f"{why}: pages {span[0]} to {span[1] - 1} of {name}: {pages.tolist()}")
        size = self.page_size
        depths = np.arange(size * (span[0] + 1), size * span[1] + 1, size, dtype=np.int64)
        depths[-1] = min(end, size * span[1])  # the last page may be filled in part
        return PageUse(name, mode, pages, depths, why)


def _state(component: str, mode: Literal["r", "w"], page: int, depth: int, why: str) -> PageUse:
    if page < 0:
        raise CoreBug(f"state of {component} at depth {depth}: expected a slot, found none")
    return PageUse(component, mode, np.array([page]), np.array([depth]), why, state=True)


_SEND = "send"


class _Stage(NamedTuple):
    """A stage of the pipeline: its compute stream, the one on which it is sent a pass, its layer
    groups [first, last), and the layers in each of them."""

    stream: Stream
    sent: Stream
    groups: tuple[int, int]
    sizes: list[int]


class Forward:
    """model: a SimDevice, or what stands in for the model on a real device (compute, publish,
    verify, sync). checked: report accesses and content. Without it, a pass only takes time.
    profile: what the host adds to a pass. stages: of the pipeline. durations: nanoseconds of the
    pass that was launched last on each stage, and send_ns, between two of them."""

    def __init__(
        self,
        model: Any,
        device: Device,
        controller: TransferController,
        costs: TimeModel,
        accesses: Accesses,
        checked: bool,
        profile: EngineProfile = PROFILE,
        stages: int = 1,
    ) -> None:
        self._model = model
        self._device = device
        self._controller = controller
        self._costs = costs
        self._accesses = accesses
        self._page_size = accesses.page_size
        self.checked = checked
        self.profile = profile
        groups = device.layers
        bounds = [costs.layers * group // groups for group in range(groups + 1)]
        sizes = [last - first for first, last in pairwise(bounds)]
        self._stages = [
            _Stage(
                device.stream(of_stage(COMPUTE, number)),
                device.stream(of_stage(_SEND if number else COMPUTE, number)),
                span,
                sizes[slice(*span)],
            )
            for number, span in enumerate(stage_layers(groups, stages))
        ]
        self._layers = [sum(stage.sizes) for stage in self._stages]
        self.durations: list[int] = []
        self.send_ns = 0

    @property
    def stages(self) -> int:
        return len(self._stages)

    def launch(
        self,
        prefills: abc.Sequence[tuple[Sequence, Prefill]],
        decoding: int,
        context: int,
        ended: Callable[[], None],
        left: Callable[[int], None] | None = None,
    ) -> int:
        """Launches a pass over prefill chunks and decoding sequences. Returns the nanoseconds that
        it takes without its waits for loads, and for other passes. ended: called when the host sees
        its end. left: called with each stage but the last when it leaves it.
        """
        chunks = [(prefill.start_token, prefill.end_token) for _, prefill in prefills]
        layer_ns = self._costs.layer_ns(chunks, decoding, context)
        self.durations, self.send_ns = self._of_stages(chunks, decoding, layer_ns)
        loads = (self._load_events(prefill) for _, prefill in prefills)
        waits = list(dict.fromkeys(chain.from_iterable(loads)))
        device_event: DeviceEvent | None = None
        for number, stage in enumerate(self._stages):
            stream, duration_ns = stage.stream, self.durations[number]
            if device_event is not None:
                if left is not None:
                    self._model.sync(device_event, partial(left, number - 1))
                self._device.wait(stage.sent, device_event)
                self._model.compute(stage.sent, self.send_ns)
                self._device.wait(stream, self._device.record(stage.sent))
            if waits:
                for group, size in enumerate(stage.sizes, stage.groups[0]):
                    for device_events in waits:
                        self._device.wait(stream, device_events[group])
                    self._group(stream, prefills, (group, group + 1), size * layer_ns)
                self._model.compute(stream, duration_ns - sum(stage.sizes) * layer_ns)
            else:
                self._group(stream, prefills, stage.groups, duration_ns)
            device_event = self._device.record(stream)
        assert device_event is not None
        self._close(device_event, ended)
        return sum(self.durations) + (len(self._stages) - 1) * self.send_ns

    def _of_stages(self, chunks: Chunks, decoding: int, layer_ns: int) -> tuple[list[int], int]:
        """Nanoseconds of a pass on each stage, and between two. The scheduler's host is that of the
        first stage; a device waits between two passes on each."""
        costs, send_ns = self._costs, 0
        numbers = [layers * layer_ns for layers in self._layers]
        overhead_ns = costs.overhead_ns(chunks, decoding)
        if len(numbers) > 1:
            begin_ns, send_ns = costs.first_ns(chunks, decoding), costs.send_ns(chunks, decoding)
            numbers[0] += begin_ns
            overhead_ns -= begin_ns
        numbers[-1] += overhead_ns
        added_ns, least_ns = self.profile.host_ns(decoding, len(chunks))
        first_ns = max(numbers[0] + added_ns, least_ns)
        return [first_ns, *(number + self.profile.step_gap_ns for number in numbers[1:])], send_ns

    def launch_decode(self, duration_ns: int, ended: Callable[[], None]) -> None:
        """Launches one or more decode steps of known total duration. One stage only."""
        stream = self._stages[0].stream
        self._model.compute(stream, duration_ns)
        self._close(self._device.record(stream), ended)

    def report_decoded(self, sequence: Sequence, leaving: bool = False) -> None:
        """Reports the reads and writes of a decoding sequence since the last call.

        Reads are reported each time, but the content of pages is compared only when the sequence
        leaves: a page that was overwritten stays wrong until then. A state is compared each time,
        because each token replaces it.
        """
        if not self.checked:
            return
        kept = sequence.kv_tokens
        why = f"decode of request {sequence.job.index} at token {kept}"
        if kept != sequence.reported:
            since, sequence.reported = sequence.reported, kept
            decoded = self._accesses.decoded(sequence, since, why)
            for stream, _, layers, _ in self._stages:
                for use in decoded:
                    if use.mode == "r" and not use.state:
                        self._device.access(stream, use.access(layers))
                    else:
                        self._perform(stream, sequence, use, layers)
        if leaving:
            result = self._accesses.context_reads(sequence, why)
            for stream, _, layers, _ in self._stages:
                for use in result:
                    self._perform(stream, sequence, use, layers)

    def _close(self, device_event: DeviceEvent, ended: Callable[[], None]) -> None:
        def finish() -> None:
            seen = self._device.query(device_event)
            assert seen, "a synchronised event is visible"
            ended()

        self._model.sync(device_event, finish)

    def _load_events(self, prefill: Prefill) -> list[tuple[DeviceEvent, ...]]:
        """The events per layer group of each load that a chunk depends on."""
        loads = map(self._controller.load_events, prefill.after)
        return [device_events for device_events in loads if device_events]

    def _group(
        self,
        stream: Stream,
        prefills: abc.Sequence[tuple[Sequence, Prefill]],
        layers: tuple[int, int],
        duration_ns: int,
    ) -> None:
        if self.checked:
            for sequence, prefill in prefills:
                loads = self._load_events(prefill)
                arriving = tuple(chain.from_iterable(each[: layers[1]] for each in loads))
                for use in self._accesses.first(prefill):
                    self._perform(stream, sequence, use, layers, arriving)
        self._model.compute(stream, duration_ns)
        if self.checked:
            for sequence, prefill in prefills:
                for use in self._accesses.last(prefill):
                    self._perform(stream, sequence, use, layers)

    def _perform(
        self,
        stream: Stream,
        sequence: Sequence,
        use: PageUse,
        layers: tuple[int, int],
        unless: tuple[DeviceEvent, ...] = (),
    ) -> None:
        """Reports the access, then compares (read) or writes (write) the content of its pages."""
        access = use.access(layers)
        self._device.access(stream, access)
        tags = tags_of(sequence, use, self._page_size)
        if access.mode == "r":
            self._model.verify(stream, access, tags, unless)
        else:
            self._model.publish(stream, access, tags)


def tags_of(sequence: Sequence, use: PageUse, page_size: int) -> Words:
    """Tags of the prefixes that end at the depths of the use; a partial page has a tag of this
    request.
    """
    count, end = len(use.depths), use.depths.item(-1)
    number = end // page_size  # the pages of a use follow each other
    if end % page_size == 0:
        return sequence.tags[number - count : number]
    return np.concatenate(
        (sequence.tags[number + 1 - count : number], partial_tag(sequence.job.index, end))
    )
