"""Named pairs: the point in its life at which a request ends, the way it ends, and what follows.

A request can end while any of its actions is under way, and what it leaves behind (a load, a pass
or a backup without a request) then meets evictions, flushes and other requests. Each combination
has a name, "aborted in its pass and load, then device eviction". What follows is counted until the
replies that were under way have come, but at least for LEAST events. Points are kept from events
and outcomes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hicache.core.actions import (
    Admitted,
    Backup,
    Granted,
    Load,
    Outcome,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    BackupDone,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    PagesWanted,
    Retracted,
)
from hicache.core.types import Tier
from hicache.core.view import CoreView

LEAST = 4  # events after an end in which what follows is counted
ARRIVING, COPYING, RESTARTED = (
    "waiting for the load of another",
    "waiting for a copy to host",
    "waiting after a restart",
)
LOOKING, FETCHING, JOINED = (
    "waiting for its lookup",
    "waiting for its fetch",
    "waiting for the prefetch of another",
)
PASS, PASS_AND_LOAD, PASS_AFTER_LOAD = (
    "in its pass",
    "in its pass and load",
    "in its pass after its load",
)
_OPEN = ("", " in its load", " in a backup", " in its load and a backup")
CHUNKS, DECODING = "between chunks", "decoding"
GROWN, NOT_GROWN = "decoding after a growth", "decoding after a refused growth"
_FAILED_LOAD, _FAILED_PASS = "restarted by its load", "restarted by its pass"
FLUSH = "flush"
LOAD_REPLY, PASS_REPLY, BACKUP_REPLY = "reply of its load", "reply of its pass", "reply of a backup"
PREFETCH_REPLY = "reply of its prefetch"
FOLLOWS = ("device eviction", "host eviction", FLUSH, "admission", "growth")
AWAITED = "while another waits for its load"
GROWTHS = "no page left at one growth, some at the next"
LANDED_ABOVE = "backup landed under a load of a child of its node"
_ENDS: dict[type, str] = {Aborted: "aborted", Finished: "finished", Retracted: "retracted"}


@dataclass(slots=True)
class _Life:
    """What is known of a request. awaits: the flight that its refusal names, and the reason."""

    stage: str = "waiting"
    restarted: bool = False
    awaits: tuple[int, str] = (0, "")
    load: int = 0
    loaded: bool = False
    running: int = 0  # its pass
    prefetch: int = 0  # the lookup or fetch that it waits for
    prefetching: str = ""  # LOOKING, FETCHING or JOINED
    backups: set[int] = field(default_factory=set)
    growth: str = ""
    scarce: set[int] = field(default_factory=set)  # components without a page at its growth

    def point(self) -> str:
        if self.stage == "waiting":
            if self.prefetch:
                return self.prefetching
            reasons = {"arriving": ARRIVING, "writing_back": COPYING}
            waits = reasons.get(self.awaits[1], "") if self.awaits[0] else ""
            return waits or (RESTARTED if self.restarted else "waiting")
        if self.running:
            return PASS_AND_LOAD if self.load else PASS_AFTER_LOAD if self.loaded else PASS
        under_way = _OPEN[bool(self.load) + 2 * bool(self.backups)]
        return self.growth if self.growth and not under_way else self.stage + under_way


@dataclass(slots=True)
class _End:
    """An end whose follow-ups are counted. left: events of LEAST. open: flights under way."""

    name: str
    left: int
    load: int
    running: int
    backups: set[int]
    prefetch: int

    def open(self) -> bool:
        return bool(self.load or self.running or self.backups or self.prefetch)


class Lives:
    """Observes one core and counts the names."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        self.lives: dict[int, _Life] = {}
        self.owner: dict[int, int] = {}  # request by flight
        self.ends: list[_End] = []
        self._available: list[int] = []
        self._above: tuple[int, ...] = ()

    def before(self, event: Event, view: CoreView) -> None:
        self._available = [pool.available for pool in view.pools(Tier.DEVICE)]
        if type(event) is BackupDone:
            self._lands_above(event, view)

    def _lands_above(self, event: BackupDone, view: CoreView) -> None:
        """Counts a successful backup of a node whose child is being loaded."""
        backup = view.flights[event.flight]
        nodes = [leg.node for leg in backup.legs if leg.node is not None]
        loads = [one for one in view.flights.values() if one.kind == "load"]
        children = [leg.node for one in loads for leg in one.legs if leg.node is not None]
        met = event.ok and any(child.parent is node for child in children for node in nodes)
        self.seen[LANDED_ABOVE] += met

    def after(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        flight = getattr(event, "flight", 0)
        subject = self.owner.pop(flight, -1) if flight else getattr(event, "request", -1)
        self._followed(event, outcomes, flight)
        self._ended(event, outcomes)
        self._prefetching(view)
        if flight:
            self._answered(event, flight, subject)
        for item in outcomes:
            self._outcome(event, item, subject)
        if isinstance(event, PagesWanted):
            self._grown(event, outcomes, view)

    def _ended(self, event: Event, outcomes: Sequence[Outcome]) -> None:
        way = _ENDS.get(type(event))
        if way is not None:
            self._end(event.request, way)  # type: ignore[union-attr]
        for item in outcomes:
            if type(item) is Restarted:
                by_load = type(event) is LoadDone
                self._end(item.request, _FAILED_LOAD if by_load else _FAILED_PASS)
                self.lives[item.request] = _Life(restarted=True)

    def _end(self, request: int, way: str) -> None:
        """Notes the end of a request, which waits again or is gone."""
        life = self.lives.pop(request, None) or _Life()
        name = f"{way} {life.point()}"
        load = 0 if way == _FAILED_LOAD else life.load
        running = 0 if way == _FAILED_PASS else life.running
        self.ends.append(_End(name, LEAST, load, running, life.backups, life.prefetch))
        waits = any(other.awaits == (life.load, "arriving") for other in self.lives.values())
        self.seen[f"{way} {AWAITED}"] += bool(life.load) and waits

    def _followed(self, event: Event, outcomes: Sequence[Outcome], flight: int) -> None:
        if not self.ends:
            return
        kind, name = type(event), ""
        if kind is EvictWanted:
            name = FOLLOWS[event.tier]  # type: ignore[union-attr]
        elif kind is Flushed:
            name = "" if outcomes and type(outcomes[0]) is Refused else FLUSH
        elif kind is AdmitWanted:
            name = "admission" if any(type(item) is Admitted for item in outcomes) else ""
        elif kind is PagesWanted:
            name = "growth" if any(type(item) is Granted for item in outcomes) else ""
        for end in self.ends:
            end.left -= 1
            said = name
            if flight and flight == end.load:
                said, end.load = LOAD_REPLY, 0
            elif flight and flight == end.running:
                said, end.running = PASS_REPLY, 0
            elif flight and flight == end.prefetch:
                said, end.prefetch = PREFETCH_REPLY, 0
            elif flight in end.backups:
                said = BACKUP_REPLY
                end.backups.discard(flight)
            if said:
                self.seen[f"{end.name}, then {said}"] += 1
        self.ends = [end for end in self.ends if end.left > 0 or end.open()]

    def _answered(self, event: Event, flight: int, subject: int) -> None:
        """Notes the reply to an action."""
        for life in self.lives.values():
            if life.awaits[0] == flight:
                life.awaits = (0, "")
        mine = self.lives.get(subject)
        if mine is None:
            return
        mine.backups.discard(flight)
        if mine.load == flight:
            mine.load, mine.loaded = 0, True
        elif mine.running == flight:
            mine.running = 0

    def _prefetching(self, view: CoreView) -> None:
        """Notes what the touched requests wait for now."""
        for number in view.touched_requests:
            request = view.requests.get(number)
            if request is None:
                continue
            life, flight = self._of(number), view.flights.get(request.prefetch)
            life.prefetch = request.prefetch
            if flight is not None:
                own = FETCHING if flight.kind == "fetch" else LOOKING
                life.prefetching = own if flight.request == number else JOINED

    def _outcome(self, event: Event, item: Outcome, subject: int) -> None:
        if isinstance(item, Load):
            self._of(item.request).load = item.flight
            self.owner[item.flight] = item.request
        elif isinstance(item, Prefill):
            life = self._of(item.request)
            life.running, life.restarted, life.awaits = item.flight, False, (0, "")
            life.stage = DECODING if item.completes_prompt else CHUNKS
            self.owner[item.flight] = item.request
        elif isinstance(item, Backup):
            if subject in self.lives:
                self.lives[subject].backups.add(item.flight)
                self.owner[item.flight] = subject
        elif isinstance(item, Refused) and type(event) is AdmitWanted:
            self._of(item.request).awaits = (item.after, item.reason)

    def _grown(self, event: PagesWanted, outcomes: Sequence[Outcome], view: CoreView) -> None:
        life = self._of(event.request)
        for at in life.scarce:
            self.seen[f"{view.components[at].name}: {GROWTHS}"] += self._available[at] > 0
        pools = view.pools(Tier.DEVICE)
        life.scarce = {at for at, pool in enumerate(pools) if not pool.available}
        life.growth = GROWN if any(type(item) is Granted for item in outcomes) else NOT_GROWN

    def _of(self, request: int) -> _Life:
        return self.lives.setdefault(request, _Life())
