"""Runs one forward pass on a device: its time, its waits, and its reads and writes.

Lives here: the order of waits, accesses and compute on the compute stream. Does not choose the
batch, compute the pages of an access (see accesses) or call the core.

A pass that reads pages still being loaded runs one layer group at a time and waits only for the
load of that group. The load of later layers then overlaps the compute of earlier ones.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import numpy as np

from hicache.core.actions import Prefill
from hicache.devices.base import Device, Mark, Stream, Touch
from hicache.runtime.controller import COMPUTE, TransferController

from ..content import Words, partial_tag
from ..engine_profiles.base import EngineProfile
from ..engine_profiles.plain import PROFILE
from ..times.base import LayerTimes
from .accesses import Access, Accesses
from .sequence import Sequence


class HostTimes:
    """The time of the host in a pass: scheduling, inputs and outputs, beside the kernels.

        pass = device + gap + host                  without overlap
        pass = max(device, host) + gap              with overlap
        host = step + per sequence x (decoding + chunks) + per chunk x chunks

    Keeps no state between calls.
    """

    __slots__ = ("_chunk_ns", "_gap_ns", "_overlap", "_sequence_ns", "_step_ns")

    def __init__(self, profile: EngineProfile) -> None:
        self._gap_ns = profile.step_gap_ns
        self._step_ns = profile.step_host_ns
        self._sequence_ns = profile.per_sequence_host_ns
        self._chunk_ns = profile.prefill_host_ns
        self._overlap = profile.overlap

    def of(self, decoding: int, chunks: int) -> tuple[int, int]:
        """(added, least) in ns: with `device_ns` of the device, a pass over so many decoding
        sequences and chunks takes max(device_ns + added, least)."""
        host_ns = self._step_ns + self._sequence_ns * (decoding + chunks) + self._chunk_ns * chunks
        if self._overlap:
            return self._gap_ns, host_ns + self._gap_ns
        return host_ns + self._gap_ns, 0


class Model(Protocol):
    """The model's work on a device: a `SimDevice`, or a stand-in for a model on a real device."""

    def compute(self, stream: Stream, duration_ns: int) -> None:
        """Queues work of this duration."""

    def publish(self, stream: Stream, touch: Touch, tags: Words) -> None:
        """Queues a write of the content with these tags."""

    def verify(
        self, stream: Stream, touch: Touch, tags: Words, unless: tuple[Mark, ...] = ()
    ) -> None:
        """Queues a read and compares the content with the tags.

        Skips the comparison if one of the marks `unless` has failed.
        """

    def sync(self, mark: Mark, action: Callable[[], None]) -> None:
        """Calls `action` when the mark is reached."""


class Forward:
    """checked: report accesses and content. Without it, a pass only takes time. host: what the host
    adds to a pass."""

    def __init__(
        self,
        model: Model,
        device: Device,
        controller: TransferController,
        costs: LayerTimes,
        accesses: Accesses,
        checked: bool,
        host: HostTimes | None = None,
    ) -> None:
        self._model = model
        self._device = device
        self._controller = controller
        self._costs = costs
        self._accesses = accesses
        self._page_size = accesses.page_size
        self.checked = checked
        self.host = host or HostTimes(PROFILE)
        self._stream = device.stream(COMPUTE)
        groups = device.layers
        bounds = [costs.layers * group // groups for group in range(groups + 1)]
        self._sizes = [last - first for first, last in pairwise(bounds)]

    def launch(
        self,
        prefills: abc.Sequence[tuple[Sequence, Prefill]],
        decoding: int,
        context: int,
        ended: Callable[[], None],
    ) -> int:
        """Launches a pass over prefill chunks and decoding sequences. Returns the nanoseconds that
        it takes without its waits for loads. ended: called when the host sees its end.
        """
        chunks = [(prefill.start_token, prefill.end_token) for _, prefill in prefills]
        layer_ns = self._costs.layer_ns(chunks, decoding, context)
        overhead_ns = self._costs.overhead_ns(chunks, decoding)
        device_ns = self._costs.layers * layer_ns + overhead_ns
        added_ns, least_ns = self.host.of(decoding, len(chunks))
        total_ns = max(device_ns + added_ns, least_ns)
        waits = self._load_marks(prefills)
        if waits:
            for group, size in enumerate(self._sizes):
                for marks in waits:
                    self._device.wait(self._stream, marks[group])
                self._group(prefills, (group, group + 1), size * layer_ns)
            self._model.compute(self._stream, overhead_ns + total_ns - device_ns)
        else:
            self._group(prefills, (0, len(self._sizes)), total_ns)
        self._close(ended)
        return total_ns

    def launch_decode(self, duration_ns: int, ended: Callable[[], None]) -> None:
        """Launches one or more decode steps of known total duration."""
        self._model.compute(self._stream, duration_ns)
        self._close(ended)

    def report_decoded(self, sequence: Sequence, leaving: bool = False) -> None:
        """Reports the reads and writes of a decoding sequence since the last call.

        Reads are reported each time, but the content of pages is compared only when the sequence
        leaves: a page that was overwritten stays wrong until then. A state is compared each time,
        because each token replaces it.
        """
        if not self.checked:
            return
        layers, held = (0, len(self._sizes)), sequence.held
        why = f"decode of request {sequence.job.index} at token {held}"
        tables, states = sequence.tables, sequence.states
        if held != sequence.reported:
            since, sequence.reported = sequence.reported, held
            for access in self._accesses.decoded(tables, states, since, held, why):
                if access.mode == "r" and not access.state:
                    self._device.touch(self._stream, access.touch(layers, why))
                else:
                    self._perform(sequence, access, layers, why)
        if leaving:
            for access in self._accesses.held(tables, states, held, why):
                self._perform(sequence, access, layers, why)

    def _close(self, ended: Callable[[], None]) -> None:
        mark = self._device.record(self._stream)

        def finish() -> None:
            seen = self._device.query(mark)
            assert seen, "a synchronised mark is visible"
            ended()

        self._model.sync(mark, finish)

    def _load_marks(
        self, prefills: abc.Sequence[tuple[Sequence, Prefill]]
    ) -> list[tuple[Mark, ...]]:
        """Returns the marks per layer group of each load that the pass depends on, without
        duplicates.
        """
        found = {
            marks: None
            for _, prefill in prefills
            for flight in prefill.after
            if (marks := self._controller.load_marks(flight))
        }
        return list(found)

    def _marks_of(self, prefill: Prefill, groups: int) -> tuple[Mark, ...]:
        """Returns the marks of the first `groups` layer groups of the loads that a chunk reads."""
        return tuple(
            mark
            for flight in prefill.after
            for mark in self._controller.load_marks(flight)[:groups]
        )

    def _group(
        self,
        prefills: abc.Sequence[tuple[Sequence, Prefill]],
        layers: tuple[int, int],
        duration_ns: int,
    ) -> None:
        if self.checked:
            for sequence, prefill in prefills:
                why = f"prefill of request {sequence.job.index} at token {prefill.start_token}"
                arriving = self._marks_of(prefill, layers[1])
                for access in self._accesses.first(prefill):
                    self._perform(sequence, access, layers, why, arriving)
        self._model.compute(self._stream, duration_ns)
        if self.checked:
            for sequence, prefill in prefills:
                why = f"prefill of request {sequence.job.index} to token {prefill.end_token}"
                for access in self._accesses.last(prefill):
                    self._perform(sequence, access, layers, why)

    def _perform(
        self,
        sequence: Sequence,
        access: Access,
        layers: tuple[int, int],
        why: str,
        unless: tuple[Mark, ...] = (),
    ) -> None:
        """Reports the access, then compares (read) or writes (write) the content of its pages."""
        touch = access.touch(layers, why)
        self._device.touch(self._stream, touch)
        tags = tags_of(sequence, access, self._page_size)
        if touch.mode == "r":
            self._model.verify(self._stream, touch, tags, unless)
        else:
            self._model.publish(self._stream, touch, tags)


def tags_of(sequence: Sequence, access: Access, page_size: int) -> Words:
    """Tags of the prefixes that end at the access's depths; a partial page has a tag of this
    request.
    """
    depths = access.depths
    end = int(depths[-1])
    if end % page_size == 0:
        return sequence.tags[depths // page_size - 1]
    return np.concatenate(
        (sequence.tags[depths[:-1] // page_size - 1], partial_tag(sequence.job.index, end))
    )
