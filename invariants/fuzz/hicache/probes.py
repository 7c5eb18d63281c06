"""Forty named states that drawn sequences should reach. A run that reaches few of them has tested
less than it seems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hicache.core import actions
from hicache.core.actions import NO_REQUEST, Outcome
from hicache.core.config import Config
from hicache.core.events import AdmitWanted, ContinueWanted, Event, FetchDone
from hicache.core.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView

NAMES = (
    *("failed PrefillDone", "failed LoadDone", "failed BackupDone"),
    *("restarted by PrefillDone", "restarted by LoadDone"),
    *(f"AdmitWanted refused: no_pages of {name}" for name in ("full", "swa", "mamba")),
    *(f"AdmitWanted refused: {why} of full" for why in ("writing_back", "arriving", "too_large")),
    *(f"{name} demoted from device by EvictWanted" for name in ("full", "swa", "mamba")),
    *("PagesWanted refused: no_pages of full", "full lost from host by EvictWanted"),
    *("Load of full by AdmitWanted", "Load of several nodes", "aux-only load"),
    *("Backup of full by PrefillDone", "write-back while loading"),
    *("backup and load of one node", "load without a request", "landed before its reply"),
    *("Admitted below the known prefix", "window cut for a short pool", "branch checkpoint"),
    *("checkpoint slot refilled in decode", "garbage locked", "tombstone healed"),
    *("split under a leg", "split under a lock"),
    *("Flushed while a load is under way", "reply after a flush"),
    *("Lookup of pages that the tree has in part", "two requests wait for one prefetch"),
    *("FetchDone of part", "fetch after a flush"),
    *("Admitted on what was fetched", "pages are distrusted"),
)
_NAMES = frozenset(NAMES)
Reached = Iterator[tuple[str, bool]]


class Probes:
    """Observes one core and counts, in `seen`, the events that reach each state."""

    def __init__(self, config: Config) -> None:
        self.page = config.page_size
        self.seen: Counter[str] = Counter()
        self._before: list[tuple[str, bool]] = []  # what is reached if the event is taken
        self._legs: dict[int, int] = {}  # by flight, their number before the event
        self._newest = 0  # the greatest node id so far
        self._tombstones: set[tuple[int, int]] = set()
        self._lacking: set[int] = set()  # requests without one of their checkpoint slots
        self._fetched: set[int] = set()  # requests for which something was fetched

    def on_event(self, event: Event, view: CoreView) -> None:
        name, flights = type(event).__name__, view.flights
        self._legs = {number: len(one.legs) for number, one in flights.items()}
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
        rules = [*self._before, *self._of_flights(view)]
        for item in outcomes:
            rules += self._of(item, event, view)
        for node in view.touched.values():
            if node.parent is not None:
                rules += self._of_node(node, view)
        self._newest = max([self._newest, *view.touched])
        self.seen.update({name for name, met in rules if met} & _NAMES)

    def _of(self, item: Outcome, event: Event, view: CoreView) -> Reached:
        name = type(event).__name__
        if isinstance(item, actions.Refused):
            yield f"{name} refused: {item.reason} of {item.component}", True
            loading = any(one.kind == "load" for one in view.flights.values())
            yield "write-back while loading", item.reason == "writing_back" and loading
        elif isinstance(item, actions.Evicted):
            how = "demoted" if item.demoted else "lost"
            yield f"{item.component} {how} from {Tier(item.tier).name.lower()} by {name}", True
        elif isinstance(item, actions.Load | actions.Backup):
            kind, parts = type(item).__name__, {copy.component for copy in item.copies}
            yield f"{kind} of {'+'.join(sorted(parts))} by {name}", True
            yield f"{kind} of several nodes", len(item.copies) > len(parts)
        elif isinstance(item, actions.Admitted):
            known = item.device_pages + item.host_pages
            yield "Admitted below the known prefix", item.matched_pages > known
            yield "aux-only load", any(item.loaded_pages) and not item.loaded_pages[0]
            fetched = item.request in self._fetched and item.host_pages > 0
            yield "Admitted on what was fetched", fetched
            self._fetched.discard(item.request)
        elif isinstance(item, actions.Restarted):
            yield f"restarted by {name}", True
        elif isinstance(item, actions.Prefill):
            request = view.requests[item.request]
            chunk = event.chunk if isinstance(event, AdmitWanted | ContinueWanted) else 0
            most = min(item.start_token + chunk, request.length)
            yield "window cut for a short pool", item.end_token < most
            depths = [depth for one in item.states for depth, _ in one.checkpoints]
            branch = request.branch_pages * self.page
            yield "branch checkpoint", branch in depths and branch != item.end_token
        elif isinstance(item, actions.Cached | actions.Granted):
            lacks = any(min(one.checkpoint_slots) < 0 for one in item.states)
            refilled = item.request in self._lacking and not lacks
            yield "checkpoint slot refilled in decode", refilled and type(item) is actions.Granted
            self._lacking = self._lacking - {item.request} | ({item.request} if lacks else set())
        elif isinstance(item, actions.Lookup):
            yield "Lookup of pages that the tree has in part", item.known_pages > 0
        elif isinstance(item, actions.Prefetched) and item.fetched_pages:
            self._fetched.add(item.request)

    def _of_flights(self, view: CoreView) -> Reached:
        for number, flight in view.flights.items():
            alone = flight.kind == "load" and flight.request == NO_REQUEST
            yield "load without a request" if flight.legs else "landed before its reply", alone
            yield "split under a leg", 0 < self._legs.get(number, 1 << 30) < len(flight.legs)
        waiters = [len(one.waiters) for one in view.storage_flights.values()]
        yield "two requests wait for one prefetch", max(waiters, default=0) > 1
        yield "pages are distrusted", bool(view.distrusted)

    def _of_node(self, node: Node, view: CoreView) -> Reached:
        split = node.id > self._newest and bool(node.children)
        yield "split under a lock", split and any(map(any, node.locks))
        moving = {leg.flight.kind for leg in node.legs}
        yield "backup and load of one node", {"backup", "load"} <= moving
        on_device = node.pages[Tier.DEVICE]
        for index in range(1, len(on_device)):
            key, there = (node.id, index), on_device[index] is not None
            beyond = node.live_distance >= view.components[index].window_pages
            yield "garbage locked", there and beyond and bool(node.locks[0][index])
            yield "tombstone healed", there and key in self._tombstones
            self._tombstones.discard(key)
            if on_device[0] is not None and not there:
                self._tombstones.add(key)
