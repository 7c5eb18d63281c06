"""The last operations of one core, for the story of an error that no check raises.

Lives here: an observer that checks nothing and keeps little. `watch` tells of its own operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.events import Event
from hicache.core.view import CoreView

from .books.story import TELL, Story, last_event


class Recent:
    """Observes one core. operations: events that it answered."""

    def __init__(self) -> None:
        self.operations = 0
        self._story = Story(TELL)
        self._event: Event | None = None

    def on_event(self, event: Event, view: CoreView) -> None:
        self._event = event

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.operations += 1
        self._story.add(self.operations, event, outcomes, ())

    def story_of(self, whom: Sequence[About]) -> list[str]:
        """The last operations, and the last event, which the core may not have answered."""
        return [*self._story.about((), ""), *last_event(self._story, self._event)]
