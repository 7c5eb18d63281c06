"""One replica of a fleet: it tells the fleet of every request that ended, and has a port, its end
of the KV link.

Does not choose requests or move their KV (see fleet and handoff).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from hicache.core.actions import Prefill
from hicache.devices.base import Device, Mark
from hicache.runtime.controller import COMPUTE, TransferController

from ..device.simulated import SimDevice
from ..engine.accesses import Access, Accesses
from ..engine.forward import tags_of
from ..engine.running import Relay
from ..engine.sequence import Sequence
from ..replica import Replica

_STREAM = "kv link"


class Port:
    """One replica's end of the KV link: reads and writes the pages of a transfer on its device.

    The accesses of a transfer are on a stream of their own, so that with checks on the hazard
    detector orders them against passes and copies, and the content of pages is compared. checked:
    report accesses and content; without it, a transfer only takes time.
    """

    def __init__(
        self,
        sim: SimDevice,
        device: Device,
        controller: TransferController,
        accesses: Accesses,
        checked: bool,
    ) -> None:
        self._sim = sim
        self._device = device
        self._controller = controller
        self._accesses = accesses
        self._checked = checked
        self._stream = device.stream(_STREAM)
        self._compute = device.stream(COMPUTE)
        self._layers = (0, device.layers)

    def order(self) -> None:
        """What is moved from now on comes after all passes that were launched. Call it at a step
        boundary."""
        self._device.wait(self._stream, self._device.record(self._compute))

    def begin(
        self, sequence: Sequence, tokens: tuple[int, int], mode: Literal["r", "w"], why: str
    ) -> None:
        """The bytes of these tokens begin to leave ("r") or to arrive ("w")."""
        for access in self._of(sequence, tokens, mode, why):
            self._device.touch(self._stream, access.touch(self._layers, why))

    def end(
        self,
        sequence: Sequence,
        tokens: tuple[int, int],
        mode: Literal["r", "w"],
        why: str,
        after: tuple[int, ...],
        then: Callable[[], None],
    ) -> None:
        """The last byte has moved. then: called when the host has seen it, and when the loads
        `after` have landed."""
        for flight in after:
            for mark in self._controller.load_marks(flight):
                self._device.wait(self._stream, mark)
        for access in self._of(sequence, tokens, mode, why):
            touch = access.touch(self._layers, why)
            tags = tags_of(sequence, access, self._accesses.page_size)
            if mode == "r":
                self._sim.verify(self._stream, touch, tags)
            else:
                self._sim.publish(self._stream, touch, tags)
        self._sim.compute(self._stream, 0)
        mark = self._device.record(self._stream)
        self._sim.sync(mark, lambda: self._seen(mark, then))

    def _seen(self, mark: Mark, then: Callable[[], None]) -> None:
        seen = self._device.query(mark)
        assert seen, "a synchronised mark is visible"
        then()

    def _of(
        self, sequence: Sequence, tokens: tuple[int, int], mode: Literal["r", "w"], why: str
    ) -> list[Access]:
        if not self._checked:
            return []
        return self._accesses.moved(sequence.tables, *tokens, why, mode)


class Member(Replica):
    """told: called with the replica's number and each request that ended there."""

    def __init__(
        self, place: int, told: Callable[[int, Sequence], None], *args: Any, **rest: Any
    ) -> None:
        super().__init__(*args, **rest)
        self.place = place
        self._told = told
        machine = self._machine
        accesses = Accesses(self.core.view.config, self.core.view.components)
        checked = machine.memory is not None
        self.port = Port(machine.sim, machine.device, self.controller, accesses, checked)

    def _ended(self, sequence: Sequence) -> None:
        super()._ended(sequence)
        self._told(self.place, sequence)


class Ends(Relay):
    """The relay of one replica: its number, and what the handoff does there."""

    def __init__(
        self,
        place: int,
        gives: Callable[[int, Sequence], bool],
        fetch: Callable[[int, Sequence, Prefill], None],
    ) -> None:
        self._place = place
        self._gives = gives
        self._fetch = fetch

    def gives(self, sequence: Sequence) -> bool:
        return self._gives(self._place, sequence)

    def fetch(self, sequence: Sequence, prefill: Prefill) -> None:
        self._fetch(self._place, sequence, prefill)
