"""The driver: event -> core -> observers -> executor, at the caller's pace.

It does not know what an event means. It is the only caller of `Core.handle`, so it is also where
observers hook in: before the core sees an event and after it has answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hicache.core.actions import Backup, Load, Outcome
from hicache.core.core import Core
from hicache.core.events import Event, Reply
from hicache.core.view import CoreView


class Observer(Protocol):
    """Sees every event and every outcome and keeps books of its own. Raises to stop the run."""

    def on_event(self, event: Event, view: CoreView) -> None:
        """Called before the core handles the event."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        """Called after, before any action was carried out."""


class Executor(Protocol):
    """Carries out transfers. Each submitted action is answered by exactly one reply, in order."""

    def submit(self, action: Load | Backup) -> None:
        """Queue a transfer. Nothing moves before `start`."""

    def start(self) -> None:
        """Begin everything queued, merged into one batch per direction."""

    def poll(self) -> list[Reply]:
        """Replies of the transfers that ended since the last call, oldest first per direction."""


class Driver:
    """Feeds one core and hands its transfers to one executor. Prefills go back to the caller."""

    __slots__ = ("core", "executor", "observers")

    def __init__(self, core: Core, executor: Executor, observers: Sequence[Observer] = ()) -> None:
        self.core = core
        self.executor = executor
        self.observers = tuple(observers)

    def feed(self, event: Event) -> list[Outcome]:
        """One event through core, observers and executor; returns all that the core answered."""
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
        """Feed the core every reply that is ready; returns what it answered."""
        outcomes: list[Outcome] = []
        for reply in self.executor.poll():
            outcomes += self.feed(reply)
        return outcomes
