"""The shadow state of one core, kept from events, outcomes and the read-only view only.

Lives here: the order in which one operation is recorded. Every old fact is retracted before a new
one is claimed. The shadow state computes again what the core computes, with none of its code.

    landed bytes -> committed bytes -> retract nodes, leavers -> record actions -> retract requests
      -> claim nodes, requests -> pin paths -> clock -> refresh what changed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from hicache.core import actions, events
from hicache.core.types import Key, RequestId, Tier
from hicache.core.view import CoreView

from .kinds import kinds_of
from .nodes import NodeShadow, Run
from .pages import PageShadow
from .pins import PinShadow, follow, lock
from .requests import RequestRecord, RequestShadow, commit, note_checkpoint_slots
from .storage import StorageShadow
from .tags import NO_TAGS, Tags, run_tags, seed_of, tags_of
from .transfers import (
    ACTION_OF,
    Move,
    TransferRecord,
    TransferShadow,
    Use,
    moves_of,
    moves_of_pieces,
    uses_of,
)

_TIERS = (Tier.DEVICE, Tier.HOST)
_ACTIONS: frozenset[type] = frozenset(get_args(actions.Action))
_OF_PAGES = (actions.Admitted, actions.Cached, actions.Granted)
_OFTEN_IDLE = (events.EvictWanted, events.TimePassed, events.PrefetchLimitReached)
Asks = dict[type, list[Any]]  # by type, checks to run before an action is recorded


class Shadow:
    """Everything that the checks know about one core.

    Lists by *slot* have one entry per tier and component: tier * width + component.
    """

    def __init__(self, view: CoreView) -> None:
        config = view.config
        self.page_size = config.page_size
        self.config = config
        self.writes = view.writes  # its declared properties
        self.kinds = kinds = kinds_of(config)
        self.width = len(kinds)
        self._indices = {kind.name: kind.at for kind in kinds}
        self.pages = [
            PageShadow(tier, kind, view.pool(tier, kind.at)) for tier in _TIERS for kind in kinds
        ]
        self.device, self.host = self.pages[0], self.pages[self.width]  # the backbone's
        self.nodes = NodeShadow(self.pages, kinds, config.page_size, config.kv_events)
        self.nodes.root.node = view.root
        self.transfers = TransferShadow(self.pages, kinds, config.page_size)
        self.requests = RequestShadow(self.pages[: self.width], kinds, self.nodes)
        self.storage = StorageShadow(config, kinds, self.pages[self.width :])
        self.pins = PinShadow(self.pages, self.nodes)
        self.operations = 0
        self.history = True  # whether all operations were recorded
        self.event: events.Event = events.Flushed()
        self.outcomes: Sequence[actions.Outcome] = ()
        self.changed: list[PageShadow] = []  # pools with pages that changed owners or ended a use
        self.clashed = False  # whether a page has two owners, or another one than it should have
        self.moves: list[Move] = []  # of the transfer that is being recorded
        self.uses: list[Use] = []  # of the pass that is being recorded
        self.missing: list[str] = []  # used paths that are not in the tree
        self.answered: TransferRecord | None = None  # the transfer record that this event answers
        self.left: Tags | None = None  # of a request that committed and left
        self.left_state = 0  # page of that at which decoding left its states
        self.parted: list[RequestRecord] = []  # requests that are no longer admitted

    def before(self, event: events.Event) -> None:
        """Before the core handles the event."""
        self.event = event
        for shadow in self.changed:
            shadow.begin()

    def pool(self, tier: int, index: int = 0) -> PageShadow:
        """The shadow of a component on a tier."""
        return self.pages[tier * self.width + index]

    def index_of(self, component: str) -> int:
        """Index of a component, or 0 for an unknown name."""
        return self._indices.get(component, 0)

    def after(
        self, event: events.Event, outcomes: Sequence[actions.Outcome], view: CoreView, first: Asks
    ) -> None:
        """Files one operation."""
        self.operations += 1
        self.outcomes = outcomes
        self.missing, self.left, self.left_state, self.answered, self.parted = [], None, 0, None, []
        self.transfers.fresh, self.transfers.settled = ([], self.transfers.latest)
        self.pins.moved, self.nodes.since = [], 0
        if type(event) in _OFTEN_IDLE and not (outcomes or view.touched or view.touched_requests):
            self.nodes.retract(view.touched, view.root)
        else:
            self._filed(event, outcomes, view, first)
        self.pins.hear(view)
        self.changed = [
            page for page in self.pages if page.claimed or page.released or page.clashes
        ]
        self.clashed = any(pages_shadow.clashes for pages_shadow in self.changed)
        for shadow in self.changed:
            shadow.sort_out()
        for record in self.nodes.dirty.values():
            self.nodes.refresh(record)

    def _filed(
        self, event: events.Event, outcomes: Sequence[actions.Outcome], view: CoreView, first: Asks
    ) -> None:
        """Files what the event, its outcomes and the nodes and requests that it touched say."""
        at_hand = self.nodes.at_hand = []
        if type(event) is events.Arrived:
            req = RequestRecord(
                event.request, event.key, event.length, event.match_pages, self.width
            )
            self.requests.by_id[event.request] = req
            self.nodes.stride = event.key.stride
            self.storage.arrive(event, req.tags[: event.match_pages])
        if type(event) in ACTION_OF:
            self.answered = answer(event, self.transfers, self.requests)  # type: ignore[arg-type]
        elif type(event) is events.Finished:
            self._commit(event.request, event.key, event.length)
        elif type(event) is events.Retracted:
            number = event.committed_tokens // self.page_size
            self._commit(event.request, event.key.first(number), event.committed_tokens)
        transfer = self.answered
        whose = transfer.request if transfer is not None else getattr(event, "request", -1)
        named = self.requests.by_id.get(whose)
        if named is not None:
            at_hand.append(run_of(named.key, named.tags))
        if type(event) is events.Flushed and not any(
            type(item) is actions.Refused for item in outcomes
        ):
            self.transfers.unlock_all()
            self.pins.flushed()
        self.nodes.retract(view.touched, view.root)
        touched = list(view.touched_requests)
        if self.width > 1:  # a chunk allocates pages of windows
            touched += [item.request for item in outcomes if type(item) is actions.Prefill]
            touched = list(dict.fromkeys(touched))
        for item in outcomes:
            if type(item) is actions.Released or type(item) is actions.Restarted:
                self._leave(item.request)
        for item in outcomes:
            kind = type(item)
            acts = kind in _ACTIONS
            if acts:
                self._read(item)  # type: ignore[arg-type]
            for ask in first.get(kind, ()):
                ask(self, item, view)
            if acts:
                self._file(item)  # type: ignore[arg-type]
        self._heard(event, outcomes)
        for request_id in touched:
            self._admit(request_id, view)
        self.nodes.claim()
        self.requests.claim()
        follow(self.transfers, self.nodes, self.answered)
        for transfer in self.transfers.fresh:
            stray = lock(transfer, self.transfers, self.nodes, self.requests)
            if stray:
                self.missing.append(stray)
        self.storage.write(self.transfers.fresh)
        self.storage.hear(event, outcomes, self.answered)
        self._advance_clock(outcomes)

    def glance(self, event: events.Event) -> None:
        """Records what a recount needs, if operations are not recorded."""
        self.operations += 1
        if type(event) is events.Arrived:
            self.nodes.stride = event.key.stride

    def _leave(self, request_id: RequestId) -> None:
        """Releases everything of a request that was released or restarted."""
        req = self.requests.by_id.get(request_id)
        if req is None:
            return
        self.parted.append(req)
        if req.admitted:
            passes = [self.transfers.open[item] for item in req.passes]
            load = self.transfers.open.get(req.load)
            locked = self.requests.leave(req, keep_locks=bool(passes))
            for value in passes:
                value.request = -1
            if passes:  # the one that ends last
                passes[-1].locked = locked
                passes[-1].prompt = req.tags
            if load is not None:
                load.request = -1
        event = self.event
        if type(event) is events.Retracted:
            self.requests.by_id[request_id] = RequestRecord(
                request_id, event.key, event.length, event.match_pages, self.width
            )
        elif type(event) not in ACTION_OF:  # else it was restarted
            del self.requests.by_id[request_id]

    def _read(self, action: actions.Action) -> None:
        """Finds the pages that an action moves or uses."""
        self.moves, self.uses = [], []
        if type(action) is actions.Load or type(action) is actions.Backup:
            self.moves = moves_of(action.copies, self.kinds)
        elif type(action) is actions.Fetch or type(action) is actions.Store:
            lookup = self.storage.looked_up(self.event)
            tags = NO_TAGS if lookup is None else lookup.prompt
            self.moves = moves_of_pieces(action, self.kinds, tags, self.storage.written)
        elif type(action) is actions.Prefill:
            shared = self._shared(action.request)
            req = self.requests.by_id.get(action.request)
            load = self.transfers.open.get(req.load) if req is not None else None
            load = load if load is not None and not load.landed else None
            self.uses = uses_of(action, self.kinds, self.page_size, shared, load)

    def _file(self, action: actions.Action) -> None:
        transfer = self.transfers.record(action, self.moves, self.uses)
        if (
            type(action) is actions.Fetch
            and (lookup := self.storage.looked_up(self.event)) is not None
        ):
            transfer.prompt = lookup.prompt[: action.first_page + action.pages]
        for move in self.moves:
            array, other = (self.pool(tier, move.at).pool.generation for tier in transfer.tiers)
            transfer.generations.append((array[move.source], other[move.target]))
        if type(action) is not actions.Load and type(action) is not actions.Prefill:
            return
        req = self.requests.by_id.get(action.request)
        if req is None:
            return
        if type(action) is actions.Load:
            req.load = action.transfer
        else:
            req.passes.append(action.transfer)
            req.states = action.states  # type: ignore[union-attr]

    def passes_before(self, action: actions.Action) -> list[TransferRecord]:
        """The open passes of the same request that began before this action, if it is one."""
        req = self.requests.by_id.get(action.request) if type(action) is actions.Prefill else None
        before = [item for item in req.passes if item < action.transfer] if req is not None else []
        return [self.transfers.open[number] for number in before]

    def _shared(self, request_id: RequestId) -> int:
        """Leading positions that a request shares, when a pass of it begins."""
        for item in self.outcomes:
            if type(item) is actions.Admitted and item.request == request_id:
                return item.device_pages + item.host_pages
        req = self.requests.by_id.get(request_id)
        return req.boundary if req is not None else 0

    def _heard(self, event: events.Event, outcomes: Sequence[actions.Outcome]) -> None:
        """Files the boundaries and state slots that the core reported to requests."""
        if type(event) is events.PagesWanted and event.computed_tokens:
            grown = self.requests.by_id.get(event.request)
            refused = any(type(x) is actions.Refused and x.reason == "too_large" for x in outcomes)
            if grown is not None and not refused:
                self.requests.lower(grown, event.computed_tokens)
        elif type(event) is events.ContinueWanted and event.request in self.requests.by_id:
            grown = self.requests.by_id[event.request]
            if not grown.load:  # else it locks what its load brings when that has landed
                self.requests.lower(grown, grown.computed_tokens)
        for item in outcomes:
            kind = type(item)
            if kind not in _OF_PAGES:
                continue
            req = self.requests.by_id.get(item.request)  # type: ignore[union-attr]
            if req is None:
                continue
            if kind is not actions.Admitted:
                filled = (
                    len(req.tables[0]) * self.page_size
                    if kind is actions.Granted
                    else req.computed_tokens
                )
                note_checkpoint_slots(req, item.states, filled)  # type: ignore[union-attr]
            if kind is actions.Granted:
                continue
            req.rehold = True
            if kind is actions.Cached:
                self.nodes.since = req.boundary
                req.boundary = int(item.pages)  # type: ignore[union-attr]
                self.requests.lower(req, req.computed_tokens)
            else:
                self.requests.admit(req, item)  # type: ignore[arg-type]

    def _admit(self, request_id: RequestId, view: CoreView) -> None:
        req, request = self.requests.by_id.get(request_id), view.requests.get(request_id)
        if req is None or request is None or not req.admitted:
            return
        load = self.transfers.open.get(req.load)
        awaited = 0
        if load is not None and not load.landed:
            awaited = sum(len(move.target) for move in load.moves if not move.at)
        self.requests.retract(req, request, awaited)

    def _advance_clock(self, outcomes: Sequence[actions.Outcome]) -> None:
        """Advances the clock by one tick per use of a path: at an admission, at an insertion, and
        when a request commits and leaves."""
        for item in outcomes:
            if type(item) is actions.Admitted:
                self._use(item.request, item.device_pages + item.host_pages)
            elif type(item) is actions.Cached:
                self._use(item.request, item.pages)
        if self.left is not None:
            self.nodes.clock += 1
            self.nodes.left(self.left)

    def _use(self, request: RequestId, pages: int) -> None:
        """Files a use of a request's boundary at `pages`."""
        req = self.requests.by_id.get(request)
        if req is None:
            return
        self.nodes.clock += 1
        if pages and (pages > len(req.tags) or not self.nodes.used(int(req.tags[pages - 1]))):
            self.missing.append(f"{pages} pages of request {req.id} end at no node")

    def _commit(self, request: RequestId, key: Key, length: int) -> None:
        req = self.requests.by_id.get(request)
        if req is not None:
            self.left, self.nodes.since = (tags := longer(req, key)), req.boundary
            self.nodes.at_hand.append(run_of(key, tags))
            self.left_state = commit(req, tags, length, self.pages, self.kinds, self.page_size)


def longer(req: RequestRecord, key: Key) -> Tags:
    """The tags of a key that goes on where the request's prompt ends, if it does."""
    above, rows = req.key, req.key.raw
    if not rows or above.namespace != key.namespace or not key.raw.startswith(rows):
        return tags_of(key)
    rest = key.raw[len(rows) :]
    return np.concatenate([req.tags, run_tags(rest, key.stride, above.pages, req.tags[-1])])


def run_of(key: Key, tags: Tags) -> Run:
    """The rows of a prompt and their tags."""
    return Run(key.raw, 0, seed_of(key.namespace), tags)


def answer(
    event: events.Reply, transfers: TransferShadow, reqs: RequestShadow
) -> TransferRecord | None:
    """Files a reply. Returns the transfer record that it answers, or None if that was not open."""
    transfer = transfers.open.get(event.transfer)
    if transfer is None:
        return None
    if type(event) is events.PrefillDone:
        _end_pass(event, transfer, transfers, reqs)
    elif type(event) is events.LoadDone or type(event) is events.BackupDone:
        transfers.land(transfer, event.ok)
    else:
        if type(event) is events.FetchDone and type(transfer.action) is actions.Fetch:
            transfers.deliver(transfer, transfer.action.first_page + event.pages)
        transfers.land(transfer, True)
    transfers.close(transfer)
    req = reqs.by_id.get(transfer.request)
    if type(event) is events.LoadDone and req is not None and req.load == transfer.id:
        req.load, req.rehold = 0, True
    return transfer


def _end_pass(
    event: events.PrefillDone,
    transfer: TransferRecord,
    transfers: TransferShadow,
    reqs: RequestShadow,
) -> None:
    req = reqs.by_id.get(transfer.request)
    if req is None or transfer.id not in req.passes:
        transfers.land_prefill(transfer, False, NO_TAGS)
        return
    req.passes.remove(transfer.id)
    load = transfers.open.get(req.load)
    if event.ok:
        if load is not None:
            transfers.land(load, True)
            req.rehold = True
        req.load = 0
        req.computed_tokens = req.working = transfer.action.end_token  # type: ignore[union-attr]
    transfers.land_prefill(transfer, event.ok, req.tags)
