"""Named states that drawn sequences should reach."""

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
        name, transfers = type(event).__name__, view.transfers
        self._before = [
            (f"{name} while a {item.kind} is under way", True) for item in transfers.values()
        ]
        transfer = transfers.get(getattr(event, "transfer", -1))
        if transfer is not None:
            pages = event.pages if isinstance(event, FetchDone) else -1
            self._before += [
                (f"failed {name}", getattr(event, "ok", True) is False),
                ("reply after a flush", any(segment.node is None for segment in transfer.segments)),
                ("fetch after a flush", pages >= 0 and transfer.receipt is None),
                ("FetchDone of part", 0 < pages < len(transfer.digests)),
            ]

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        rules = [*self._before, ("pages are distrusted", bool(view.distrusted))]
        for transfer in view.transfers.values():
            alone = transfer.kind == "load" and transfer.request == NO_REQUEST
            name = "load without a request" if transfer.segments else "landed before its reply"
            rules.append((name, alone))
            rules.append(("two requests wait for one prefetch", len(transfer.waiters) > 1))
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
