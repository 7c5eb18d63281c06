"""One forward pass on a device: its time, its waits, and what it reads and writes.

Lives here: the order of waits, accesses and compute on the compute stream. Must not live here: who
is in the batch, or the core.

A pass that reads pages still being loaded runs layer group by layer group and waits, before each,
for that group alone: the load of later layers overlaps the work of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from itertools import pairwise
from typing import Protocol

import numpy as np

from hicache.core.actions import Prefill
from hicache.core.types import Pages
from hicache.devices.base import Device, Mark, Stream
from hicache.runtime.controller import COMPUTE, TransferController

from .content import Words, partial_tag
from .costs import CostModel
from .sequence import Sequence


class Model(Protocol):
    """The work of a model on a device: `SimDevice`, or what stands for a model on a real one."""

    def compute(self, stream: Stream, duration_ns: int) -> None:
        """Queue that much work."""

    def publish(
        self,
        stream: Stream,
        component: str,
        pages: Pages,
        tags: Words,
        layers: tuple[int, int],
        why: str,
    ) -> None:
        """Queue a write of the content that the tags stand for."""

    def verify(
        self,
        stream: Stream,
        component: str,
        pages: Pages,
        tags: Words,
        layers: tuple[int, int],
        why: str,
        unless: tuple[Mark, ...] = (),
    ) -> None:
        """Queue a read that must find it, unless one of the marks tells of a failure."""

    def sync(self, mark: Mark, action: Callable[[], None]) -> None:
        """Call `action` once the mark is reached."""


class Forward:
    """checked: report accesses and content; without it a pass is nothing but time."""

    def __init__(
        self,
        model: Model,
        device: Device,
        controller: TransferController,
        costs: CostModel,
        page_size: int,
        component: str,
        checked: bool,
    ) -> None:
        self._model = model
        self._device = device
        self._controller = controller
        self._costs = costs
        self._page_size = page_size
        self._component = component
        self._checked = checked
        self._stream = device.stream(COMPUTE)
        groups = device.layers
        bounds = [costs.layers * group // groups for group in range(groups + 1)]
        self._sizes = [last - first for first, last in pairwise(bounds)]

    def launch(
        self,
        prefills: Several[tuple[Sequence, Prefill]],
        decoding: int,
        context: int,
        ended: Callable[[], None],
    ) -> None:
        """One pass over prefill chunks and decoding sequences; `ended` when the host sees it."""
        chunks = [(prefill.start, prefill.end) for _, prefill in prefills]
        layer_ns = self._costs.layer_ns(chunks, decoding, context)
        overhead_ns = self._costs.overhead_ns(chunks, decoding)
        waits = self._load_marks(prefills)
        if waits:
            for group, size in enumerate(self._sizes):
                for marks in waits:
                    self._device.wait(self._stream, marks[group])
                self._group(prefills, (group, group + 1), size * layer_ns)
            self._model.compute(self._stream, overhead_ns)
        else:
            total_ns = self._costs.layers * layer_ns + overhead_ns
            self._group(prefills, (0, len(self._sizes)), total_ns)
        self._close(ended)

    def launch_decode(self, duration_ns: int, ended: Callable[[], None]) -> None:
        """One or several decode steps in a row, of known duration."""
        self._model.compute(self._stream, duration_ns)
        self._close(ended)

    def touch_decoded(self, sequence: Sequence, leaving: bool = False) -> None:
        """What a decoding sequence read and wrote since this was last called for it.

        Its reads are reported each time, but their content is compared once, when it leaves: a page
        that was overwritten under it cannot have become right again.
        """
        if not self._checked:
            return
        size = self._page_size
        layers = (0, len(self._sizes))
        why = f"decode of request {sequence.job.index} at token {sequence.held}"
        if sequence.held != sequence.touched:
            first, last = sequence.touched // size, -(-sequence.held // size)
            if first:
                pages = sequence.table[:first]
                self._device.touch(self._stream, self._component, pages, "r", layers, why)
            tags = self._content(sequence, first, sequence.held)
            self._write(sequence.table[first:last], tags, layers, why)
            sequence.touched = sequence.held
        if leaving:
            whole = sequence.held // size
            self._read(sequence.table[:whole], sequence.tags[:whole], layers, why)

    def _close(self, ended: Callable[[], None]) -> None:
        mark = self._device.record(self._stream)

        def finish() -> None:
            seen = self._device.query(mark)
            assert seen, "a synchronised mark is visible"
            ended()

        self._model.sync(mark, finish)

    def _load_marks(self, prefills: Several[tuple[Sequence, Prefill]]) -> list[tuple[Mark, ...]]:
        """Marks per layer group of the batches that the pass depends on, each batch once."""
        found = {
            marks: None
            for _, prefill in prefills
            for flight in prefill.after
            if (marks := self._controller.load_marks(flight))
        }
        return list(found)

    def _marks_of(self, prefill: Prefill, groups: int) -> tuple[Mark, ...]:
        """Marks of the first layer groups of the loads that a chunk reads."""
        return tuple(
            mark
            for flight in prefill.after
            for mark in self._controller.load_marks(flight)[:groups]
        )

    def _group(
        self,
        prefills: Several[tuple[Sequence, Prefill]],
        layers: tuple[int, int],
        duration_ns: int,
    ) -> None:
        size = self._page_size
        if self._checked:
            for sequence, prefill in prefills:
                cached = prefill.start // size
                why = f"prefill of request {sequence.job.index} at token {prefill.start}"
                arriving = self._marks_of(prefill, layers[1])
                self._read(prefill.table[:cached], sequence.tags[:cached], layers, why, arriving)
        self._model.compute(self._stream, duration_ns)
        if self._checked:
            for sequence, prefill in prefills:
                first, last = prefill.start // size, -(-prefill.end // size)
                why = f"prefill of request {sequence.job.index} to token {prefill.end}"
                tags = self._content(sequence, first, prefill.end)
                self._write(prefill.table[first:last], tags, layers, why)

    def _content(self, sequence: Sequence, first: int, tokens: int) -> Words:
        """Tags of pages from `first` on, the last one partial where `tokens` ends inside it."""
        whole = tokens // self._page_size
        if whole * self._page_size == tokens:
            return sequence.tags[first:whole]
        return np.concatenate((sequence.tags[first:whole], partial_tag(sequence.job.index, whole)))

    def _read(
        self,
        pages: Pages,
        tags: Words,
        layers: tuple[int, int],
        why: str,
        unless: tuple[Mark, ...] = (),
    ) -> None:
        if len(pages):
            self._device.touch(self._stream, self._component, pages, "r", layers, why)
            self._model.verify(self._stream, self._component, pages, tags, layers, why, unless)

    def _write(self, pages: Pages, tags: Words, layers: tuple[int, int], why: str) -> None:
        if len(pages):
            self._device.touch(self._stream, self._component, pages, "w", layers, why)
            self._model.publish(self._stream, self._component, pages, tags, layers, why)
