"""The driver: it passes events to a core, and outcomes to observers and an executor.

It is the only caller of `Core.handle`, so it calls the observers, before the core handles an event
and after it has answered. It does nothing unless it is called, and does not know what an event
means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hicache.core.actions import Backup, Load, Outcome
from hicache.core.core import Core
from hicache.core.events import Event, Reply
from hicache.core.radix.node import FlightKind
from hicache.core.view import CoreView


class Observer(Protocol):
    """Sees every event and every outcome. It stops the run by raising an exception."""

    def on_event(self, event: Event, view: CoreView) -> None:
        """Called before the core handles the event."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        """Called after the core has handled the event, before any action is carried out."""


class Executor(Protocol):
    """Carries out transfers. It answers each submitted action with exactly one reply, in order."""

    def submit(self, action: Load | Backup) -> None:
        """Queue a transfer. Nothing moves before `start`."""

    def start(self) -> None:
        """Begin everything that is queued, merged into one batch per direction."""

    def poll(self) -> list[Reply]:
        """Replies of the transfers that ended since the last call, oldest first per direction."""


class Driver:
    """Feeds events to one core and passes its transfers to one executor. The caller runs the
    prefills."""

    __slots__ = ("core", "executor", "observers")

    def __init__(self, core: Core, executor: Executor, observers: Sequence[Observer] = ()) -> None:
        self.core = core
        self.executor = executor
        self.observers = tuple(observers)

    def feed(self, event: Event) -> list[Outcome]:
        """Pass one event to the core and submit its transfers. Returns all outcomes."""
        view = self.core.view
        for observer in self.observers:
            observer.on_event(event, view)
        outcomes = self.core.handle(event)
        for observer in self.observers:
            observer.on_outcomes(event, outcomes, view)
        for outcome in outcomes:
            if type(outcome) is Load or type(outcome) is Backup:
                self.executor.submit(outcome)
        return outcomes

    def poll(self) -> list[Outcome]:
        """Feed the core every reply that is ready. Returns its outcomes."""
        return [outcome for reply in self.executor.poll() for outcome in self.feed(reply)]

    def settle(self, pause: Callable[[], None] | None = None) -> list[Outcome]:
        """Start every queued transfer and feed the core each reply, until no transfer is left, also
        none that a reply began. Returns the outcomes. Prefills are not waited for.

        pause: called whenever nothing has ended yet, to let time pass: a short sleep, or a step of
        a simulated clock. Without it the executor is asked again at once. If it raises, a later
        call goes on where this one ended.
        """
        outcomes: list[Outcome] = []
        flights = self.core.view.flights
        while any(flight.kind is not FlightKind.PREFILL for flight in flights.values()):
            self.executor.start()
            replies = self.executor.poll()
            for reply in replies:
                outcomes += self.feed(reply)
            if not replies and pause is not None:
                pause()
        return outcomes
