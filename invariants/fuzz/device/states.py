"""Named states of a simulated device that a good fuzzer must reach.

Lives here: recognising them from what is under way on the device while the core is told something.
Must not live here: any verdict, or the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hicache.core.actions import Load, Outcome, Prefill
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.controller import TransferController

from ..records import Pending
from .rig import PlannedDevice

_COPIES = {Tier.DEVICE: "load", Tier.HOST: "backup"}


class DeviceStates:
    """Observes one core and counts into `seen`. done: whether the host knows of an end that the
    core was not told of."""

    def __init__(self, seen: Counter[str], device: PlannedDevice, done: Callable[[], bool]) -> None:
        self.seen = seen
        self._device = device
        self._done = done
        self._late = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        name = type(event).__name__
        moving = self._device.moving
        for tier in moving:
            self.seen[f"{name} while a {_COPIES[tier]} is in chunks on the device"] += 1
        self.seen["copies both ways at once on the device"] += len(moving) > 1
        self.seen[f"{name} between an end on the device and its reply"] += self._done()

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        """All is said before the core answers."""

    def looked(self, ended: Sequence[Pending]) -> None:
        """The host has asked; these are what it may take."""
        late, self._late = self._late, self._device.late
        held_back = self._late > late and not ended
        self.seen["a poll saw nothing though something was done"] += held_back
        self.seen["a poll saw ends of two streams"] += len(ended) > 1

    def batch(self, lane: str, actions: int) -> None:
        kind = "several" if actions > 1 else "one"
        self.seen[f"a batch of {kind} on the {lane} stream"] += 1

    def launched(self, action: Prefill, controller: TransferController) -> None:
        waits = any(controller.load_marks(flight) for flight in action.after)
        self.seen["a pass waits for its load on the device"] += waits
        moving = bool(self._device.moving)
        self.seen["a pass is launched while a copy moves"] += moving

    def replied(self, one: Pending, fine: bool) -> None:
        kind = "load" if isinstance(one.action, Load) else "backup"
        if not fine:
            self.seen[f"a {kind} failed on the device"] += 1
            self.seen[f"a {kind} failed with another of its batch"] += not one.fault
