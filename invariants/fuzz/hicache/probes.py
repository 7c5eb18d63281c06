"""Named states that drawn sequences should reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hicache.core import actions
from hicache.core.actions import NO_REQUEST, Outcome
from hicache.core.events import Event, FetchDone
from hicache.core.types import Tier
from hicache.core.view import CoreView

NAMES = (
    *("failed PrefillDone", "failed LoadDone", "failed BackupDone"),
    *("restarted by PrefillDone", "restarted by LoadDone", "Admitted on what was fetched"),
    *(f"AdmitWanted refused: no_pages of {name}" for name in ("full", "swa", "mamba")),
    *(f"AdmitWanted refused: {why} of full" for why in ("writing_back", "arriving", "too_large")),
    *(f"{name} demoted from device by EvictWanted" for name in ("full", "swa", "mamba")),
    *("PagesWanted refused: no_pages of full", "full lost from host by EvictWanted"),
    *("Load of full by AdmitWanted", "aux-only load", "Backup of full by PrefillDone"),
    *("Admitted below the known prefix", "load without a request", "landed before its reply"),
    *("Flushed while a load is under way", "two requests wait for one prefetch"),
    *("FetchDone of part", "fetch after a flush", "reply after a flush", "pages are distrusted"),
)
_NAMES = frozenset(NAMES)


class Probes:
    """Observes one core and counts, in `seen`, the events that reach each state."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._before: list[tuple[str, bool]] = []  # what is reached if the event is taken
        self._fetched: set[int] = set()  # requests for which something was fetched

    def on_event(self, event: Event, view: CoreView) -> None:
        name, flights = type(event).__name__, view.flights
        self._before = [
            (f"{name} while a {one.kind} is under way", True) for one in flights.values()
        ]
        flight = flights.get(getattr(event, "flight", -1))
        if flight is not None:
            pages = event.pages if isinstance(event, FetchDone) else -1
            self._before += [
                (f"failed {name}", getattr(event, "ok", True) is False),
                ("reply after a flush", any(leg.node is None for leg in flight.legs)),
                ("fetch after a flush", pages >= 0 and flight.receipt is None),
                ("FetchDone of part", 0 < pages < len(flight.digests)),
            ]

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        rules = [*self._before, ("pages are distrusted", bool(view.distrusted))]
        for flight in view.flights.values():
            alone = flight.kind == "load" and flight.request == NO_REQUEST
            rules.append(
                ("load without a request" if flight.legs else "landed before its reply", alone)
            )
            rules.append(("two requests wait for one prefetch", len(flight.waiters) > 1))
        for item in outcomes:
            rules += self._of(item, event)
        self.seen.update({name for name, met in rules if met} & _NAMES)

    def _of(self, item: Outcome, event: Event) -> Iterator[tuple[str, bool]]:
        name = type(event).__name__
        if isinstance(item, actions.Refused):
            yield f"{name} refused: {item.reason} of {item.component}", True
        elif isinstance(item, actions.Evicted):
            how = "demoted" if item.demoted else "lost"
            yield f"{item.component} {how} from {Tier(item.tier).name.lower()} by {name}", True
        elif isinstance(item, actions.Load | actions.Backup):
            parts = {copy.component for copy in item.copies}
            yield f"{type(item).__name__} of {'+'.join(sorted(parts))} by {name}", True
        elif isinstance(item, actions.Admitted):
            known = item.device_pages + item.host_pages
            yield "Admitted below the known prefix", item.matched_pages > known
            yield "aux-only load", any(item.loaded_pages) and not item.loaded_pages[0]
            yield "Admitted on what was fetched", {item.request} <= self._fetched
        elif isinstance(item, actions.Restarted):
            yield f"restarted by {name}", True
        elif isinstance(item, actions.Prefetched) and item.fetched_pages:
            self._fetched.add(item.request)
