"""An observer that counts pages moved and admissions refused. It judges nothing.

Must not live here: evictions and the digest, which sim.recorder keeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Backup, Load, Outcome, Refused
from hicache.core.events import Event
from hicache.core.view import CoreView


class Tally:
    """loaded, backed_up: pages of the backbone by direction. refused: how often, by reason."""

    def __init__(self) -> None:
        self.loaded = 0
        self.backed_up = 0
        self.refused: dict[str, int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Nothing to count before the answer is known."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Load):
                self.loaded += _backbone_pages(outcome)
            elif isinstance(outcome, Backup):
                self.backed_up += _backbone_pages(outcome)
            elif isinstance(outcome, Refused):
                self.refused[outcome.reason] = self.refused.get(outcome.reason, 0) + 1


def _backbone_pages(action: Load | Backup) -> int:
    """Pages of the first component; what follows it is in the model's bytes per page."""
    backbone = action.copies[0].component
    return sum(len(copy.target) for copy in action.copies if copy.component == backbone)
