"""An observer that counts pages moved and evicted, and refusals, per component.

Does not check anything. Does not compute the digest; see sim/recorder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hicache.core.actions import Backup, Evicted, Load, Outcome, Refused
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView


class Tally:
    """loaded, backed_up: pages by component. evicted: pages by (tier, component).

    refused: how often, by (reason, component).
    """

    def __init__(self) -> None:
        self.loaded: Counter[str] = Counter()
        self.backed_up: Counter[str] = Counter()
        self.evicted: Counter[tuple[Tier, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()

    def on_event(self, event: Event, view: CoreView) -> None:
        """Counts nothing: only outcomes count."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Evicted):
                self.evicted[outcome.tier, outcome.component] += len(outcome.pages)
            elif isinstance(outcome, Load):
                _count(self.loaded, outcome)
            elif isinstance(outcome, Backup):
                _count(self.backed_up, outcome)
            elif isinstance(outcome, Refused):
                self.refused[outcome.reason, outcome.component] += 1


def _count(pages: Counter[str], action: Load | Backup) -> None:
    for copy in action.copies:
        pages[copy.component] += len(copy.target)
