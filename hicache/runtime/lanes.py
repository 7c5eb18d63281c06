"""A lane: one direction of transfer, with the transfers that are queued and in flight.

It merges queued transfers into batches, issues a batch to a device, and polls for the end of the
batches in order. It does not make the core's events; see `controller`.

A batch has one copy per component and layer group, over the pages of all its transfers. The groups
are issued in ascending order with a mark after each, so that a forward pass can wait for the layer
that it needs. Each stage of a pipeline copies its own layers, on a stream of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Copy, Transfer
from hicache.core.errors import HicacheError
from hicache.core.types import FlightId, Pages
from hicache.devices.base import CopyJob, Device, Direction, Mark


class LaneFullError(HicacheError):
    """More transfers were submitted than a lane accepts without an answer."""


class Batch(NamedTuple):
    """Transfers that were issued together, one mark per layer group, and the last of each stage."""

    flights: tuple[FlightId, ...]
    marks: tuple[Mark, ...]
    ends: tuple[Mark, ...]


class Ended(NamedTuple):
    flight: FlightId
    ok: bool


class LanePart(NamedTuple):
    """What one stage of a pipeline copies: the name of its stream, and its layer groups, each
    [first, last)."""

    stream: str
    groups: tuple[tuple[int, int], ...]


class Lane:
    """One direction, on one stream of each stage.

    capacity  the most transfers queued or in flight at once; one more is a LaneFullError.
    depth     the most batches in flight at once. Transfers that are queued meanwhile are merged
              into a later batch.
    parts     of each stage, in order.
    """

    def __init__(
        self,
        device: Device,
        direction: Direction,
        parts: Sequence[LanePart],
        capacity: int,
        depth: int,
    ) -> None:
        self._device = device
        self._direction = direction
        self._name = parts[0].stream
        self._parts = [(device.stream(part.stream), part.groups) for part in parts]
        self._capacity = capacity
        self._depth = depth
        self._queued: deque[Transfer] = deque()
        self._batches: deque[Batch] = deque()
        self._marks: dict[FlightId, tuple[Mark, ...]] = {}

    def __len__(self) -> int:
        """Number of transfers queued or in flight."""
        return len(self._queued) + len(self._marks)

    def __contains__(self, flight: FlightId) -> bool:
        """Whether the transfer is queued or in flight."""
        return flight in self._marks or any(one.flight == flight for one in self._queued)

    @property
    def queued(self) -> bool:
        """Whether `issue` has something to do."""
        return bool(self._queued) and len(self._batches) < self._depth

    def marks(self, flight: FlightId) -> tuple[Mark, ...]:
        """One mark per layer group of a transfer in flight. Empty after `ended` has returned it."""
        return self._marks.get(flight, ())

    def submit(self, action: Transfer) -> None:
        if len(self) >= self._capacity:
            raise LaneFullError(
                f"lane {self._name}: flight {action.flight} would be one more than the "
                f"{self._capacity} transfers it may hold unanswered; poll for replies first"
            )
        self._queued.append(action)

    def issue(self, after: Sequence[Mark]) -> None:
        """Issue everything that is queued as one batch, which starts after a mark of each stage."""
        actions = tuple(self._queued)
        self._queued.clear()
        device = self._device
        merged = _merged(actions)
        flights = tuple(action.flight for action in actions)
        why = f"{self._name} of flights {flights[0]}..{flights[-1]}"
        marks, ends = [], []
        for (stream, groups), mark in zip(self._parts, after, strict=True):
            device.wait(stream, mark)
            for group in groups:
                for component, (source, target) in merged.items():
                    job = CopyJob(self._direction, component, source, target, group, why)
                    device.copy(stream, job)
                marks.append(device.record(stream))
            ends.append(marks[-1])
        batch = Batch(flights, tuple(marks), tuple(ends))
        self._batches.append(batch)
        for flight in flights:
            self._marks[flight] = batch.marks

    def ended(self) -> list[Ended]:
        """Transfers that ended since the last call, in order of submission."""
        ended: list[Ended] = []
        device = self._device
        while self._batches and all(device.query(mark) for mark in self._batches[0].ends):
            batch = self._batches.popleft()
            ok = not any(device.failed(mark) for mark in batch.marks)
            for flight in batch.flights:
                del self._marks[flight]
                ended.append(Ended(flight, ok))
        return ended


def _merged(actions: tuple[Transfer, ...]) -> dict[str, tuple[Pages, Pages]]:
    """Source and target pages of all actions, by component in order of first appearance."""
    copies: dict[str, list[Copy]] = {}
    for action in actions:
        for copy in action.copies:
            copies.setdefault(copy.component, []).append(copy)
    return {
        component: (
            np.concatenate([copy.source for copy in parts]),
            np.concatenate([copy.target for copy in parts]),
        )
        for component, parts in copies.items()
    }
