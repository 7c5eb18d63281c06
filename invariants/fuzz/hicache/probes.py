"""Forty named states that drawn sequences should reach. A run that reaches few of them has tested
less than it seems.

Each name is a rule over one event, its outcomes, and what was in flight before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hicache.core.actions import (
    NO_REQUEST,
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    Load,
    Lookup,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    Released,
    Restarted,
    StateSlots,
)
from hicache.core.config import Config
from hicache.core.events import AdmitWanted, ContinueWanted, Event, FetchDone, Reply
from hicache.core.radix.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView

HEALED = "tombstone healed"
NAMES = (
    *(f"failed {reply}" for reply in ("PrefillDone", "LoadDone", "BackupDone")),
    *("restarted by PrefillDone", "restarted by LoadDone"),
    *(f"AdmitWanted refused: no_pages of {name}" for name in ("full", "swa", "mamba")),
    "PagesWanted refused: no_pages of full",
    *(f"AdmitWanted refused: {why} of full" for why in ("writing_back", "arriving", "too_large")),
    *(f"{name} demoted from device by EvictWanted" for name in ("full", "swa", "mamba")),
    "full lost from host by EvictWanted",
    *("Load of full by AdmitWanted", "Load of several nodes", "aux-only load"),
    *("Backup of full by PrefillDone", "write-back while loading"),
    *("backup and load of one node", "load without a request", "landed before its reply"),
    *("Admitted below the known prefix", "window cut for a short pool", "branch checkpoint"),
    *("checkpoint slot refilled in decode", "garbage locked", HEALED),
    *("split under a leg", "split under a lock"),
    *("Flushed while a load is under way", "reply after a flush"),
    *("Lookup of pages that the tree has in part", "two requests wait for one prefetch"),
    *("FetchDone of part", "fetch after a flush"),
    *("Admitted on what was fetched", "pages are distrusted"),
)
_NAMES = frozenset(NAMES)


def unreached(seen: Mapping[str, int]) -> list[str]:
    return [name for name in NAMES if not seen.get(name)]


class Probes:
    """Observes one core and counts, in `seen`, the events that reach each state."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.seen: Counter[str] = Counter()
        self._kinds: set[str] = set()  # of the flights before the event
        self._legs: dict[int, int] = {}  # by flight, their number before the event
        self._forgotten = False  # a node of the answered flight has left the tree
        self._asked = 0  # pages of the answered fetch
        self._newest = 0  # the greatest node id so far
        self._tombstones: set[tuple[int, int]] = set()
        self._slots: dict[int, tuple[StateSlots, ...]] = {}
        self._fetched: set[int] = set()  # requests for which something was fetched

    def on_event(self, event: Event, view: CoreView) -> None:
        self._kinds = {str(one.kind) for one in view.flights.values()}
        self._legs = {number: len(one.legs) for number, one in view.flights.items()}
        answered = view.flights.get(getattr(event, "flight", -1))
        self._forgotten = answered is not None and any(leg.node is None for leg in answered.legs)
        if isinstance(event, FetchDone) and answered is not None:
            self._asked = len(answered.digests)
            self._see("fetch after a flush", answered.receipt is None)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        name = type(event).__name__
        self._see(f"failed {name}", getattr(event, "ok", True) is False)
        for kind in self._kinds:
            self._see(f"{name} while a {kind} is under way")
        self._see("reply after a flush", self._forgotten and isinstance(event, Reply))
        if isinstance(event, FetchDone):
            self._see("FetchDone of part", 0 < event.pages < self._asked)
        for item in outcomes:
            self._outcome(event, name, item, view)
        self._flights(view)
        for node in view.touched.values():
            if node.parent is not None:
                self._node(node, view)
        self._newest = max([self._newest, *view.touched])

    def _see(self, name: str, met: bool = True) -> None:
        if met and name in _NAMES:
            self.seen[name] += 1

    def _outcome(self, event: Event, name: str, item: Outcome, view: CoreView) -> None:
        if isinstance(item, Refused):
            self._see(f"{name} refused: {item.reason} of {item.component}")
            loading = any(one.kind == "load" for one in view.flights.values())
            self._see("write-back while loading", item.reason == "writing_back" and loading)
        elif isinstance(item, Evicted):
            how = "demoted" if item.demoted else "lost"
            self._see(f"{item.component} {how} from {Tier(item.tier).name.lower()} by {name}")
        elif isinstance(item, Load | Backup):
            kind, parts = type(item).__name__, {copy.component for copy in item.copies}
            self._see(f"{kind} of {'+'.join(sorted(parts))} by {name}")
            self._see(f"{kind} of several nodes", len(item.copies) > len(parts))
        elif isinstance(item, Admitted):
            known = item.device_pages + item.host_pages
            self._see("Admitted below the known prefix", item.matched_pages > known)
            loaded = item.loaded_pages
            self._see("aux-only load", any(loaded) and not loaded[0])
            self._see(
                "Admitted on what was fetched",
                item.request in self._fetched and item.host_pages > 0,
            )
            self._fetched.discard(item.request)
        elif isinstance(item, Restarted):
            self._see(f"restarted by {name}")
        elif isinstance(item, Prefill):
            self._pass(event, item, view)
        elif isinstance(item, Cached | Granted):
            for old, new in zip(self._slots.get(item.request, ()), item.states, strict=False):
                if isinstance(item, Granted):
                    missing = min(old.checkpoint_slots) < 0 <= min(new.checkpoint_slots)
                    self._see("checkpoint slot refilled in decode", missing)
            self._slots[item.request] = item.states
        elif isinstance(item, Released):
            self._slots.pop(item.request, None)
        elif isinstance(item, Lookup):
            self._see("Lookup of pages that the tree has in part", item.known_pages > 0)
        elif isinstance(item, Prefetched) and item.fetched_pages:
            self._fetched.add(item.request)

    def _pass(self, event: Event, item: Prefill, view: CoreView) -> None:
        request = view.requests[item.request]
        if isinstance(event, AdmitWanted | ContinueWanted):
            most = min(item.start_token + event.chunk, request.length)
            self._see("window cut for a short pool", item.end_token < most)
        branch = request.branch_pages * self.config.page_size
        depths = [depth for one in item.states for depth, _ in one.checkpoints]
        self._see("branch checkpoint", branch in depths and branch != item.end_token)

    def _flights(self, view: CoreView) -> None:
        for number, flight in view.flights.items():
            if flight.kind == "load" and flight.request == NO_REQUEST:
                self._see("load without a request" if flight.legs else "landed before its reply")
            self._see("split under a leg", 0 < self._legs.get(number, 1 << 30) < len(flight.legs))
        most = max((len(one.waiters) for one in view.storage_flights.values()), default=0)
        self._see("two requests wait for one prefetch", most > 1)
        self._see("pages are distrusted", bool(view.distrusted))

    def _node(self, node: Node, view: CoreView) -> None:
        split = node.id > self._newest and bool(node.children)
        self._see("split under a lock", split and any(map(any, node.locks)))
        moving = {leg.flight.kind for leg in node.legs}
        self._see("backup and load of one node", {"backup", "load"} <= moving)
        on_device = node.pages[Tier.DEVICE]
        for index in range(1, len(on_device)):
            key, there = (node.id, index), on_device[index] is not None
            beyond = node.live_distance >= view.components[index].window_pages
            self._see("garbage locked", there and beyond and bool(node.locks[0][index]))
            if on_device[0] is not None and not there:
                self._tombstones.add(key)
            elif there and key in self._tombstones:
                self._tombstones.discard(key)
                self._see(HEALED)
