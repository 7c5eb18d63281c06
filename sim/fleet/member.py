"""One replica of a fleet: it tells the fleet of every request that ended, and has a port.

Does not choose requests or move their KV (see fleet and handoff).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core.actions import Prefill

from ..engine.accesses import Accesses
from ..engine.relay import Relay
from ..engine.sequence import Sequence
from ..replica import Replica
from .port import Port


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
