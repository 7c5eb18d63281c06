"""Named states of a simulated device that a good fuzzer must reach.

Lives here: recognising them from the running work whenever the core gets an event. Checks nothing.
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
from .planned import PlannedDevice

_COPIES = {Tier.DEVICE: "load", Tier.HOST: "backup"}


class DeviceStates:
    """Observes one core and counts into `seen`. done: returns whether the host has seen an end that
    was not reported to the core yet.
    """

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
        """Does nothing: states are counted at the event."""

    def looked(self, ended: Sequence[Pending]) -> None:
        """Called after a poll with the replies that the host may take."""
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
