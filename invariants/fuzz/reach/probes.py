"""Probes count named states that a good fuzzer must reach.

The names combine kinds of events and outcomes, open flights, places of copies, and results of
matches. If a long run never reaches an expected name, it has tested less than it seems. Does not
check the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    Load,
    Matched,
    Outcome,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.config import Config
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView

from .lives import Lives
from .rates import measured, owed
from .states import States
from .stored import Stored

MISSED = 18
_COPIES = (Load, Backup)
_ANSWERS = (Matched, Granted, Restarted)
ENOUGH = 20_000  # sequences in which every measured name must be reached


def unreached(seen: Mapping[str, int], components: Sequence[str] = ()) -> list[str]:
    """Measured names that were not reached."""
    return [name for name in measured(*components) if seen.get(name, 0) < 1]


def missed(
    seen: Mapping[str, int], played: Mapping[str, int], components: Sequence[str] = ()
) -> list[str]:
    """Names that a run should have reached and did not.

    After `ENOUGH` sequences these are all measured names, before that the names whose measured rate
    requires it. played: number of sequences by components.
    """
    every = sum(played.values()) >= ENOUGH
    return [name for name in unreached(seen, components) if every or owed(name, played)]


class Probes:
    """Observes one core and counts names."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.seen: Counter[str] = Counter()
        self.states = States(config, self.seen)
        self.lives = Lives(self.seen)
        self.stored = Stored(config, self.seen)
        self._open: dict[int, str] = {}  # kinds of the flights open before the event

    def on_event(self, event: Event, view: CoreView) -> None:
        self._open = {number: flight.kind for number, flight in view.flights.items()}
        self.states.before(event, view)
        self.lives.before(event, view)
        self.stored.before(event, view)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        seen, name = self.seen, type(event).__name__
        ok = getattr(event, "ok", None)
        seen[name if ok is not False else f"failed {name}"] += 1
        for kind in sorted(set(self._open.values())):
            seen[f"{name} while a {kind} is under way"] += 1
        for item in outcomes:
            self._outcome(name, item)
        self.states.after(event, outcomes, view)
        self.lives.after(event, outcomes, view)
        self.stored.after(event, outcomes, view)

    def _outcome(self, name: str, item: Outcome) -> None:
        seen = self.seen
        if isinstance(item, Refused):
            seen[f"{name} refused: {item.reason} of {item.component}"] += 1
        elif isinstance(item, Evicted):
            side = "demoted" if item.demoted else "lost"
            seen[f"{item.component} {side} from {Tier(item.tier).name.lower()} by {name}"] += 1
        elif isinstance(item, _COPIES):
            kind = type(item).__name__
            parts = sorted({copy.component for copy in item.copies})
            seen[f"{kind} of {'+'.join(parts)} by {name}"] += 1
            seen[
                f"{kind} of {'several nodes' if len(item.copies) > len(parts) else 'one node'}"
            ] += 1
        elif isinstance(item, Admitted):
            self._seated(item)
        elif isinstance(item, Prefill):
            seen["Prefill after a load" if item.after else "Prefill"] += 1
            seen[
                f"Prefill with {sum(len(one.checkpoints) for one in item.states)} checkpoints"
            ] += 1
            if item.start_token == item.end_token:
                seen["Prefill of zero tokens"] += 1
        elif isinstance(item, Cached):
            seen["Cached"] += 1
        elif isinstance(item, _ANSWERS):
            seen[f"{type(item).__name__} by {name}"] += 1

    def _seated(self, item: Admitted) -> None:
        device, host = item.device_pages > 0, item.host_pages > 0
        self.seen[
            "Admitted on device and host"
            if device and host
            else "Admitted on device"
            if device
            else "Admitted on host"
            if host
            else "Admitted on nothing"
        ] += 1
        if item.matched_pages > item.device_pages + item.host_pages:
            self.seen["Admitted below the known prefix"] += 1
        for at, pages in enumerate(item.loaded_pages):
            if pages:
                self.seen[f"Admitted with a load of {self.config.components[at]}"] += 1
        if any(item.loaded_pages) and not item.loaded_pages[0]:
            self.seen["Admitted with a load beside the backbone"] += 1
