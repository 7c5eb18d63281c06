"""The books of one core, kept from events, outcomes and the read-only view only.

Lives here: the order in which one operation is filed. Every old fact is retracted before a new one
is claimed. Does not contain checks or use code of the core: the books compute again what the core
computes.

    landed bytes -> committed bytes -> retract nodes, leavers -> file actions -> retract requests
      -> claim nodes, requests -> pin paths -> clock -> refresh what changed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    Load,
    Outcome,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import Key, RequestId, Tier
from hicache.core.view import CoreView

from .kinds import kinds_of, needs_of
from .leaving import branch_of, commit, made_of, note_checkpoint_slots
from .nodes import NodeBook
from .orders import order_of
from .pages import NODE, PageBook
from .pins import pin
from .reference import find
from .requests import RequestBook, RequestMirror, tags_of
from .tags import Tags
from .tickets import Move, Ticket, TicketBook, Use, moves_of, uses_of

Issue = Callable[["Book", Outcome, CoreView], None]


class Book:
    """Everything that the checks know about one core.

    Lists by *slot* have one entry per tier and component: tier * width + component.
    """

    def __init__(self, view: CoreView) -> None:
        config = view.config
        self.page_size = config.page_size
        self.config = config
        self.eviction, self.writes = view.eviction, view.writes  # their declared properties
        self.kinds = kinds = kinds_of(config)
        self.width = len(kinds)
        self._indices = {kind.name: kind.at for kind in kinds}
        self.pages = [
            PageBook(tier, kind, view.pool(tier, kind.at).capacity)
            for tier in (Tier.DEVICE, Tier.HOST)
            for kind in kinds
        ]
        self.device, self.host = self.pages[0], self.pages[self.width]  # the backbone's
        self.nodes = NodeBook(
            self.pages,
            kinds,
            needs_of(kinds, self.eviction.whole_path),
            order_of(self.eviction),
            config.page_size,
            config.kv_events,
        )
        self.nodes.root.node = view.root
        self.tickets = TicketBook(self.pages, kinds, config.page_size)
        self.requests = RequestBook(self.pages[: self.width], kinds, self.nodes)
        self.operations = 0
        self.history = True  # whether all operations were filed
        self.event: Event = Flushed()
        self.outcomes: Sequence[Outcome] = ()
        self.changed: list[PageBook] = []  # pools with pages that changed owners or ended a use
        self.free_before = [book.capacity for book in self.pages]
        self.evictable_before = [0] * len(self.pages)
        self.idle_before = [0] * self.width  # of state components, before a pass is answered
        self.writing_back_before = [0] * self.width
        self.moves: list[Move] = []  # of the transfer that is being filed
        self.uses: list[Use] = []  # of the pass that is being filed
        self.missing: list[str] = []  # used paths that are not in the tree
        self.answered: Ticket | None = None  # the ticket that this event answers
        self._arriving = RequestMirror(-1, Key(b"", 1), 0, 0, self.width)
        self.left: tuple[RequestMirror, Tags, list[int]] | None = (
            None  # a request that committed and left
        )
        self.parted: list[RequestMirror] = []  # requests that are no longer admitted

    def before(self, event: Event, view: CoreView) -> None:
        """Records the state before the core handles the event."""
        self.event = event
        pools = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
        for slot, (book, pool) in enumerate(zip(self.pages, pools, strict=True)):
            book.begin()
            self.free_before[slot] = pool.free
            self.evictable_before[slot] = book.held[NODE] - book.protected
        for index in range(self.width):
            self.writing_back_before[index] = view.writing_back(index)
        kind = type(event)
        if kind is Arrived:
            key, pages = event.key, event.match_pages  # type: ignore[union-attr]
            req = RequestMirror(event.request, key, event.length, pages, self.width)  # type: ignore[union-attr]
            req.priority = event.priority  # type: ignore[union-attr]
            self._expect(req)
            self._arriving = req
        elif kind is PrefillDone:
            for one in self.kinds:
                if not one.positional:
                    self.idle_before[one.at] = self.pages[one.at].idle()
        elif kind is AdmitWanted or kind is MatchWanted:
            known = self.requests.by_id.get(event.request)  # type: ignore[union-attr]
            if known is not None:
                self._expect(known)

    def _expect(self, req: RequestMirror) -> None:
        req.expected = find(req.known, self.nodes.resident, self.kinds)

    def pool(self, tier: int, index: int = 0) -> PageBook:
        """The page book of a component on a tier."""
        return self.pages[tier * self.width + index]

    def index_of(self, component: str) -> int:
        """Index of a component, or 0 for an unknown name."""
        return self._indices.get(component, 0)

    def after(
        self,
        event: Event,
        outcomes: Sequence[Outcome],
        view: CoreView,
        issue: dict[type, list[Any]],
    ) -> None:
        """Files one operation. issue: by type, checks to run before an action is filed."""
        self.operations += 1
        self.outcomes = outcomes
        self.missing, self.left, self.answered, self.parted = [], None, None, []
        self.tickets.fresh, self.tickets.settled = [], self.tickets.latest
        if type(event) is Arrived:
            self.requests.by_id[event.request] = self._arriving
            self.nodes.stride = event.key.stride
        landed = _EVENTS.get(type(event))
        if landed is not None:
            landed(self, event)
        if type(event) is Flushed and not any(type(item) is Refused for item in outcomes):
            self.tickets.unpin_all()
        self.nodes.retract(view.touched, view.root)
        touched = list(view.touched_requests)
        if self.width > 1:  # a chunk allocates pages of windows
            touched += [item.request for item in outcomes if type(item) is Prefill]
            touched = list(dict.fromkeys(touched))
        for request_id in touched:
            self._leave(request_id, view)
        for item in outcomes:
            kind = type(item)
            if kind is Load or kind is Backup:
                self.moves, self.uses = moves_of(item.copies, self.kinds), []  # type: ignore[union-attr]
            elif kind is Prefill:
                self.moves, self.uses = [], self._uses(item, view)  # type: ignore[arg-type]
            for ask in issue.get(kind, ()):
                ask(self, item, view)
            if kind is Load or kind is Backup or kind is Prefill:
                self._file(item, view)  # type: ignore[arg-type]
        self._heard(event, outcomes)
        for request_id in touched:
            self._admit(request_id, view)
        self.nodes.claim()
        self.requests.claim()
        for ticket in self.tickets.fresh:
            stray = pin(ticket, self.tickets, self.nodes, self.requests)
            if stray:
                self.missing.append(stray)
        self._advance_clock(outcomes)
        self.changed = [one for one in self.pages if one.claimed or one.released or one.clashes]
        for book in self.changed:
            book.sort_out()
        for mirror in self.nodes.dirty.values():
            self.nodes.refresh(mirror)

    def glance(self, event: Event) -> None:
        """Records what a recount needs, if operations are not filed."""
        self.operations += 1
        if type(event) is Arrived:
            self.nodes.stride = event.key.stride

    def _leave(self, request_id: RequestId, view: CoreView) -> None:
        """Releases everything of a request that is no longer admitted."""
        req, request = self.requests.by_id.get(request_id), view.requests.get(request_id)
        if req is None or (request is not None and request.admitted):
            return
        self.parted.append(req)
        if req.admitted:
            prefill = self.tickets.open.get(req.prefill)
            load = self.tickets.open.get(req.load)
            locked = self.requests.leave(req, keep_locks=prefill is not None)
            if prefill is not None:
                prefill.locked, prefill.request = locked, -1
                prefill.path = sum(tag in self.nodes.at for tag in req.tags.tolist())
            if load is not None:
                load.request = -1
        if request is None:
            del self.requests.by_id[request_id]
        elif type(self.event) is Retracted:
            event = self.event
            again = RequestMirror(
                request_id, event.key, event.length, event.match_pages, self.width
            )
            again.may_load, again.priority = req.may_load, req.priority
            self.requests.by_id[request_id] = again
        elif any(type(item) is Restarted for item in self.outcomes):
            req.may_load = False

    def _file(self, action: Load | Backup | Prefill, view: CoreView) -> None:
        ticket = self.tickets.file(action, self.moves, self.uses)
        for move in self.moves:
            one, other = (view.pool(tier, move.at).generation for tier in ticket.tiers)
            ticket.generations.append((one[move.source], other[move.target]))
        if type(action) is Backup:
            return
        req = self.requests.by_id.get(action.request)  # type: ignore[union-attr]
        if req is None:
            return
        if type(action) is Load:
            req.load = action.flight
        else:
            req.prefill, req.states = action.flight, action.states  # type: ignore[union-attr]

    def _uses(self, action: Prefill, view: CoreView) -> list[Use]:
        record = view.requests.get(action.request)
        shared = record.shared_pages if record is not None else 0
        return uses_of(action, self.kinds, self.page_size, shared)

    def _heard(self, event: Event, outcomes: Sequence[Outcome]) -> None:
        """Files the boundaries and state slots that the core reported to requests."""
        if type(event) is PagesWanted and event.computed_tokens:
            grown = self.requests.by_id.get(event.request)
            refused = any(getattr(item, "reason", "") == "too_large" for item in outcomes)
            if grown is not None and not refused:
                self.requests.lower(grown, event.computed_tokens)
        elif type(event) is ContinueWanted and event.request in self.requests.by_id:
            grown = self.requests.by_id[event.request]
            self.requests.lower(grown, grown.computed_tokens)
        for item in outcomes:
            kind = type(item)
            if kind is not Admitted and kind is not Cached and kind is not Granted:
                continue
            req = self.requests.by_id.get(item.request)  # type: ignore[union-attr]
            if req is None:
                continue
            if kind is not Admitted:
                room = (
                    len(req.tables[0]) * self.page_size if kind is Granted else req.computed_tokens
                )
                note_checkpoint_slots(req, item.states, room)  # type: ignore[union-attr]
            if kind is Granted:
                continue
            req.rehold = True
            if kind is Cached:
                req.boundary = int(item.pages)  # type: ignore[union-attr]
                req.made = branch_of(req, self.kinds, self._since(), self.page_size)
                self.requests.lower(req, req.computed_tokens)
            else:
                self.requests.admit(req, item)  # type: ignore[arg-type]

    def _since(self) -> int:
        """The first token of the pass that this event ended, or 0."""
        action = self.answered.action if self.answered is not None else None
        return action.start_token if type(action) is Prefill else 0

    def _admit(self, request_id: RequestId, view: CoreView) -> None:
        req, request = self.requests.by_id.get(request_id), view.requests.get(request_id)
        if req is None or request is None or not request.admitted:
            return
        load = self.tickets.open.get(req.load)
        awaited = 0
        if load is not None and not load.landed:
            awaited = sum(len(move.target) for move in load.moves if not move.at)
        self.requests.retract(req, request, awaited)

    def _advance_clock(self, outcomes: Sequence[Outcome]) -> None:
        """Advances the clock by one tick per use of a path, at its admission or insertion."""
        for item in outcomes:
            if type(item) is Admitted:
                req = self.requests.by_id.get(item.request)
                if req is not None:
                    req.used = 0
                    self._use(req, req.tags, item.device_pages + item.host_pages)
            elif type(item) is Cached:
                req = self.requests.by_id.get(item.request)
                if req is not None:
                    gone = self._evicted_after_use() if req.made else ()
                    made = made_of(req, self.nodes, self.kinds, gone)
                    self._use(req, req.tags, item.pages, made)
        if self.left is not None:
            req, tags, ends = self.left
            self._use(req, tags, ends[0], ends[1:])

    def _evicted_after_use(self) -> list[str]:
        """Components whose pages were evicted from device after the last use in this event.

        Earlier evictions made room for the insertion, and do not concern the boundary that it made.
        """
        return [
            item.component
            for item in self.outcomes
            if type(item) is Evicted
            and item.tier == Tier.DEVICE
            and item.last_use > self.nodes.clock
        ]

    def _use(self, req: RequestMirror, tags: Tags, pages: int, above: Sequence[int] = ()) -> None:
        """Files a use of the boundary at `pages`, and of the boundaries `above` made with it."""
        self.nodes.clock += 1
        since, req.used = req.used, max(req.used, pages)
        if not pages:
            return
        if pages > len(tags) or not self.nodes.used(
            int(tags[pages - 1]), above, req.priority, since
        ):
            self.missing.append(f"{pages} pages of request {req.id} end at no node")

    # Effects of an event on bytes and tickets, filed before the core's actions.

    def _prefill_done(self, event: PrefillDone) -> None:
        ticket = self.answered = self.tickets.open.get(event.flight)
        if ticket is None:
            return
        req = self.requests.by_id.get(ticket.request)
        if req is not None and req.prefill == ticket.id:
            req.prefill = 0
            load = self.tickets.open.get(req.load)
            if event.ok:
                if load is not None:
                    self.tickets.land(load, True)
                    req.rehold = True
                req.load = 0
                req.computed_tokens = req.working = ticket.action.end_token  # type: ignore[union-attr]
            self.tickets.land_prefill(ticket, event.ok, req.tags)
        else:
            self.tickets.land_prefill(ticket, False, self.nodes.root.tags)
        self.tickets.close(ticket)

    def _load_done(self, event: LoadDone) -> None:
        ticket = self.answered = self.tickets.open.get(event.flight)
        if ticket is None:
            return
        self.tickets.land(ticket, event.ok)
        self.tickets.close(ticket)
        req = self.requests.by_id.get(ticket.request)
        if req is not None and req.load == ticket.id:
            req.load, req.rehold = 0, True

    def _backup_done(self, event: BackupDone) -> None:
        ticket = self.answered = self.tickets.open.get(event.flight)
        if ticket is not None:
            self.tickets.land(ticket, event.ok)
            self.tickets.close(ticket)

    def _finished(self, event: Finished) -> None:
        self._commit(event.request, event.key, event.length)

    def _retracted(self, event: Retracted) -> None:
        whole = event.committed_tokens // self.page_size
        self._commit(event.request, event.key.first(whole), event.committed_tokens)

    def _commit(self, request: RequestId, key: Key, length: int) -> None:
        req = self.requests.by_id.get(request)
        if req is not None:
            tags = tags_of(key)
            made = commit(req, tags, length, self.pages, self.kinds, self.page_size)
            self.left = (req, tags, made)


_EVENTS: dict[type, Callable[[Book, Any], None]] = {
    PrefillDone: Book._prefill_done,
    LoadDone: Book._load_done,
    BackupDone: Book._backup_done,
    Finished: Book._finished,
    Retracted: Book._retracted,
}
