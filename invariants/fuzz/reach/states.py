"""Named states that a good fuzzer must reach, recognised from what observers see.

Each state is a rule over one event, its outcomes, and the tree before it. Does not count events by
kind (see probes) or check the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hicache.core.actions import (
    NO_REQUEST,
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    KvRemoved,
    KvStored,
    Load,
    Outcome,
    Prefill,
    Refused,
    Released,
    Restarted,
    StateSlots,
)
from hicache.core.config import Config
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    PrefillDone,
    Reply,
    Retracted,
)
from hicache.core.radix.node import FAR, NONE, Node
from hicache.core.types import Tier
from hicache.core.view import CoreView

_ENDINGS = (Retracted, Finished, Aborted)
_CHUNKS = (AdmitWanted, ContinueWanted)
_KEPT = (Cached, Granted)
_ROUTED = (KvStored, KvRemoved)
_SIDES = tuple(tier.name.lower() for tier in (Tier.DEVICE, Tier.HOST))


class _Copy(NamedTuple):
    """Names of states of a node's component. where: nowhere, on device, on host, on both."""

    where: tuple[str, ...]
    locked_twice: str
    host_locked: str

    @classmethod
    def of(cls, name: str) -> _Copy:
        sides = (f"{name} nowhere", *(f"{name} on {side}" for side in (*_SIDES, "both")))
        return cls(sides, f"{name} locked twice", f"{name} of host locked")


class _Pool(NamedTuple):
    """Names of states of a pool."""

    full: str
    in_use: str
    retiring: str
    on_loan: str

    @classmethod
    def of(cls, name: str) -> _Pool:
        kinds = ("no page free", "all in use", "retiring", "on loan")
        return cls(*(f"{kind}: {name}" for kind in kinds))


class States:
    """Observes one core and counts the names of its states."""

    def __init__(self, config: Config, seen: Counter[str]) -> None:
        self.config = config
        self.seen = seen
        self.newest = 0  # the greatest node id so far
        self.tombstones: set[tuple[int, int]] = set()
        self.history: dict[int, dict[str, None]] = {}  # earlier states by request
        self.chunks: Counter[int] = Counter()
        self.slots: dict[int, tuple[StateSlots, ...]] = {}
        self.tables: dict[int, list[int]] = {}
        self.legs: dict[int, int] = {}
        self.landing: list[tuple[Node, int, int]] = []
        self.forgotten = False
        names = config.components
        self._copies_are = [_Copy.of(name) for name in names]
        self._pools_are = [_Pool.of(f"{name} of {side}") for side in _SIDES for name in names]
        seen.update(dict.fromkeys((one for pool in self._pools_are for one in pool), 0))

    def before(self, event: Event, view: CoreView) -> None:
        self.legs = {number: len(flight.legs) for number, flight in view.flights.items()}
        self.landing = [
            (leg.node, leg.component, int(leg.target[0]))
            for flight in view.flights.values()
            if flight.kind == "load"
            for leg in flight.legs
            if leg.node is not None
        ]
        number = getattr(event, "flight", None)
        flight = view.flights.get(number) if number is not None else None
        self.forgotten = flight is not None and any(leg.node is None for leg in flight.legs)

    def after(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._flights(event, view)
        self._pools(event, outcomes, view)
        self._landed(event, view)
        for node in view.touched.values():
            if node.parent is not None:
                self._node(node, view)
        self.newest = max([self.newest, *view.touched])
        self._event(event, outcomes)
        for item in outcomes:
            self._outcome(event, item, view)

    def _event(self, event: Event, outcomes: Sequence[Outcome]) -> None:
        seen = self.seen
        if isinstance(event, Arrived):
            part = event.length % self.config.page_size
            seen["prompt with a part of a page" if part else "prompt of whole pages"] += 1
            seen["prompt of one token"] += event.length == 1
            seen["prompt in a namespace"] += bool(event.key.namespace)
        elif isinstance(event, ContinueWanted):
            self.chunks[event.request] += 1
            seen["third chunk"] += self.chunks[event.request] >= 2
        elif isinstance(event, EvictWanted):
            got = any(isinstance(item, Evicted) for item in outcomes)
            seen["evicted nothing"] += not got and event.pages > 0
        elif isinstance(event, _ENDINGS):
            name = type(event).__name__.lower()
            for earlier in self.history.get(event.request, ()):
                seen[f"{earlier}, then {name}"] += 1
            if isinstance(event, Retracted):
                self._note(event.request, "retracted")

    def _note(self, request: int, what: str) -> None:
        self.history.setdefault(request, {})[what] = None

    def _outcome(self, event: Event, item: Outcome, view: CoreView) -> None:
        seen = self.seen
        if isinstance(item, Refused):
            seen["a request is named to be retracted"] += item.preempt != NO_REQUEST
            seen["write-back while loading"] += item.reason == "writing_back" and any(
                flight.kind == "load" for flight in view.flights.values()
            )
            if isinstance(event, AdmitWanted):
                again = "refused arriving" in self.history.get(item.request, ())
                seen["refused arriving twice"] += again and item.reason == "arriving"
                self._note(item.request, f"refused {item.reason}")
        elif isinstance(item, Admitted):
            for earlier in self.history.get(item.request, ()):
                seen[f"{earlier}, then admitted"] += 1
            seen["aux-only load"] += any(item.loaded_pages) and not item.loaded_pages[0]
            seen["whole prompt reused"] += item.tokens_to_compute == 0
        elif isinstance(item, Load):
            self._note(item.request, "loaded")
        elif isinstance(item, Restarted):
            self._note(item.request, "restarted")
            seen[f"restarted by {type(event).__name__}"] += 1
        elif isinstance(item, Prefill):
            self._pass(event, item, view)
        elif isinstance(item, _KEPT):
            self._kept(item)
        elif isinstance(item, _ROUTED):
            seen[f"{type(item).__name__} of {Tier(item.tier).name.lower()}"] += 1
        elif isinstance(item, Backup):
            count = sum(flight.kind == "backup" for flight in view.flights.values())
            seen["as many backups as allowed"] += count == self.config.max_backups
        elif isinstance(item, Released):
            self.slots.pop(item.request, None)
            self.tables.pop(item.request, None)

    def _pass(self, event: Event, item: Prefill, view: CoreView) -> None:
        seen, size = self.seen, self.config.page_size
        request = view.requests[item.request]
        if isinstance(event, _CHUNKS):
            most = min(item.start_token + event.chunk, request.length)
            seen["window cut for a short pool"] += item.end_token < most
        for states in item.states:
            for depth, _ in states.checkpoints:
                inner = depth == request.branch_pages * size and depth != item.end_token
                seen["branch checkpoint"] += inner
                seen["checkpoint within a pass"] += depth < item.end_token
        seen["state copied before its first use"] += any(one.source >= 0 for one in item.states)
        seen["hole in a table"] += any(bool((table < 0).any()) for table in item.tables[1:])
        seen["pass from a part of a page"] += item.start_token % size > 0
        self.tables[item.request] = item.tables[0].tolist()

    def _kept(self, item: Cached | Granted) -> None:
        seen = self.seen
        old = self.slots.get(item.request, ())
        for was, now in zip(old, item.states, strict=False):
            missing = min(was.checkpoint_slots) < 0 <= min(now.checkpoint_slots)
            name = "in decode" if isinstance(item, Granted) else "after a pass"
            seen[f"checkpoint slot refilled {name}"] += missing
        seen["no free checkpoint slot"] += any(min(one.checkpoint_slots) < 0 for one in item.states)
        self.slots[item.request] = item.states
        table, before = item.tables[0].tolist(), self.tables.get(item.request, [])
        seen["duplicate replaced"] += before != table[: len(before)]
        self.tables[item.request] = table

    def _flights(self, event: Event, view: CoreView) -> None:
        seen, kinds = self.seen, [str(flight.kind) for flight in view.flights.values()]
        for kind in dict.fromkeys(kinds):
            seen[f"two {kind}s at once"] += kinds.count(kind) > 1
        seen["load, backup and pass at once"] += len({*kinds}) == 3
        seen["load and backup at once"] += "load" in kinds and "backup" in kinds
        seen["three loads at once"] += kinds.count("load") > 2
        seen["five flights at once"] += len(kinds) >= 5
        for number, flight in view.flights.items():
            if flight.kind != "backup" and flight.request == NO_REQUEST:
                whole = flight.kind == "prefill" or bool(flight.legs)
                seen[f"{flight.kind} without a request"] += whole
                seen["landed before its reply"] += not whole
            grown = 0 < self.legs.get(number, 1 << 30) < len(flight.legs)
            seen["split under a leg"] += grown
            seen["write-back of another component"] += flight.evicts and any(flight.frees[1:])
        if isinstance(event, Flushed) and self.legs and not view.root.children:
            seen["flushed under a copy"] += 1
        seen["reply after a flush"] += self.forgotten and isinstance(event, Reply)

    def _landed(self, event: Event, view: CoreView) -> None:
        if not isinstance(event, LoadDone | PrefillDone | BackupDone) or not event.ok:
            return
        still = [leg.node for one in view.flights.values() for leg in one.legs]
        for node, index, target in self.landing:
            if node in still:
                continue
            held = node.pages[Tier.DEVICE][index]
            took = held is not None and target in held.tolist()
            self.seen["load adopted" if took else "load given back"] += 1

    def _pools(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        seen = self.seen
        pools = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
        for pool, name in zip(pools, self._pools_are, strict=True):
            cached, lent, retiring = pool.counts[2:]
            if pool.free == 0:
                seen[name.full] += pool.capacity > 0
                seen[name.in_use] += 0 < pool.protected == cached
            if retiring:
                seen[name.retiring] += 1
            if lent:
                seen[name.on_loan] += 1

    def _node(self, node: Node, view: CoreView) -> None:
        seen, fresh = self.seen, node.id > self.newest
        if fresh and node.children:
            seen["split"] += 1
            seen["split under a lock"] += any(map(any, node.locks))
        seen["three children"] += len(node.children) > 2
        seen["node without children"] += not node.children
        seen["four hits"] += node.hits > 3
        seen["boundary beyond every window"] += node.live_distance == FAR
        seen["no boundary below"] += node.live_distance == NONE
        seen["refused by host, to be dropped"] += node.host_refused > 0
        sources = [leg.flight.kind for leg in node.legs]
        seen["backup and load of one node"] += "backup" in sources and "load" in sources
        on_device, on_host = node.pages
        backbone = on_device[0] is not None
        for index, name in enumerate(self._copies_are):
            device, host = on_device[index] is not None, on_host[index] is not None
            seen[name.where[device + 2 * host]] += 1
            seen[name.locked_twice] += len(node.locks[0][index]) > 1
            seen[name.host_locked] += bool(node.locks[1][index])
            if index:
                self._bounded(node, index, device, backbone, view.components[index].window_pages)

    def _bounded(self, node: Node, index: int, device: bool, backbone: bool, window: int) -> None:
        seen, key = self.seen, (node.id, index)
        if node.live_distance >= window and device:
            seen["garbage locked" if node.locks[0][index] else "garbage"] += 1
        if backbone and not device:
            self.tombstones.add(key)
        elif device and key in self.tombstones:
            self.tombstones.discard(key)
            seen["tombstone healed"] += 1
