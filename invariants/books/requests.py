"""Requests as the books know them: their prompt's tags, their tables, which pages are theirs, and
what of the tree they lock.

Lives here: the retract-old, add-new bookkeeping of requests on the device page books. Must not live
here: how nodes come about, tickets, or verdicts.

    by position   |--- shared: nodes' pages, or a load's ---|--- own (-1: none) ---|
    a state       working, checkpoint slot 0 and 1: all its own

What a request locks follows from its history: the backbone of everything that it shares, and of
another component the nodes that its *boundary* requires: that of its req, later that of its last
insertion, from the moment they are on device. Where it decodes on, what its window has passed goes.
"""

from __future__ import annotations

from hicache.core.actions import Admitted, StateSlots
from hicache.core.radix.node import Request
from hicache.core.types import NO_PAGES, FlightId, Key, Pages, RequestId

from .kinds import Kind
from .nodes import NodeBook
from .pages import REQUEST, PageBook, code_of, same
from .reference import NOTHING, Expected
from .tags import Tags, run_tags, seed_of


class RequestMirror:
    """One request, waiting or admitted. tags: of the prompt's pages, by prefix."""

    __slots__ = (
        "admitted",
        "boundary",
        "branch_pages",
        "computed_tokens",
        "expected",
        "handed",
        "held",
        "id",
        "known",
        "length",
        "load",
        "low",
        "made",
        "match_pages",
        "may_load",
        "own",
        "prefill",
        "priority",
        "refilled_at_tokens",
        "rehold",
        "shared_pages",
        "states",
        "tables",
        "tags",
        "used",
        "working",
    )

    def __init__(
        self, request: RequestId, key: Key, length: int, match_pages: int, width: int
    ) -> None:
        self.id = request
        self.length = length
        self.match_pages = match_pages
        self.tags: Tags = tags_of(key)
        self.known: list[int] = self.tags[:match_pages].tolist()
        self.may_load = True
        self.priority = 0
        self.used = 0  # leading pages that its admission counted as used
        self.expected: Expected = NOTHING  # what the reference says that it would find
        self.vacate(width)

    def vacate(self, width: int) -> None:
        self.admitted = False
        self.computed_tokens = 0  # tokens whose bytes are in the table
        self.low = 0  # pages behind whose windows it holds nothing any more, and never again will
        self.boundary = 0  # pages whose required nodes it locks
        self.branch_pages = 0  # pages of it that were known when it was admitted
        self.made = 0  # a boundary above it that may have been made with it
        self.rehold = False  # its boundary, or what is there of it, changed
        self.shared_pages: Pages = NO_PAGES  # the backbone's pages that it locks
        self.tables: list[Pages] = [NO_PAGES] * width
        self.own: list[Pages] = [NO_PAGES] * width
        self.held: list[list[Pages]] = [[] for _ in range(width - 1)]
        self.prefill: FlightId = 0
        self.load: FlightId = 0
        self.states: tuple[StateSlots, ...] = ()  # as last handed out
        self.refilled_at_tokens = (
            0  # tokens that it may have computed when a checkpoint slot became its own
        )
        self.working = 0  # tokens that its working states have read, -1 where nobody knows
        self.handed: tuple[tuple[Pages, bytes], ...] = ()  # tables last given out, and copies


def own_of(request: Request, kind: Kind) -> Pages:
    """Device pages of a component that are the request's and no node's or load's."""
    own: Pages = request.tables[kind.at]
    if kind.positional:
        own = own[request.shared_pages :]
    if kind.at and len(own) and own.min() < 0:
        own = own[own >= 0]
        own.flags.writeable = False
    return own


def tags_of(key: Key) -> Tags:
    return run_tags(key.raw, key.stride, 0, seed_of(key.namespace))


class RequestBook:
    """All requests that live."""

    def __init__(self, device: list[PageBook], kinds: tuple[Kind, ...], nodes: NodeBook) -> None:
        self.device = device
        self.kinds = kinds
        self.nodes = nodes
        self.by_id: dict[RequestId, RequestMirror] = {}
        self.admitted = 0
        self._claims: list[tuple[RequestMirror, int, Pages]] = []
        self._holds: list[RequestMirror] = []

    def leave(self, req: RequestMirror, keep_locks: bool) -> list[list[Pages]]:
        """A request gives everything back; whoever keeps its locks gets what it locked, per
        component."""
        locked = [[req.shared_pages], *req.held]
        code = code_of(REQUEST, req.id)
        for index, book in enumerate(self.device):
            book.retract(req.own[index], code)
            if not keep_locks:
                for pages in locked[index]:
                    book.locks[pages] -= 1
        if req.admitted:
            self.admitted -= 1
        req.vacate(len(self.kinds))
        return locked

    def retract(self, req: RequestMirror, request: Request, awaited: int) -> None:
        """First half: give up own pages that are no longer its own. awaited: the last of its
        shared positions that a load has yet to fill."""
        if not req.admitted:
            req.admitted = True
            self.admitted += 1
        for index, kind in enumerate(self.kinds):
            table = request.tables[index]
            if table is not req.tables[index] or kind.positional:
                self._own(req, index, own_of(request, kind))
            req.tables[index] = table
        book = self.device[0]
        shared = req.tables[0][: request.shared_pages - awaited]
        held = len(req.shared_pages)
        if len(shared) >= held and same(shared[:held], req.shared_pages):
            book.locks[shared[held:]] += 1
        else:
            book.locks[req.shared_pages] -= 1
            book.locks[shared] += 1
        req.shared_pages = shared
        if req.rehold:
            req.rehold = False
            if req.held:
                self._holds.append(req)

    def _own(self, req: RequestMirror, index: int, own: Pages) -> None:
        before, book, code = req.own[index], self.device[index], code_of(REQUEST, req.id)
        kept, now = len(before), len(own)
        if now >= kept and same(own[:kept], before):
            fresh = own[kept:]
        elif now < kept and same(before[kept - now :], own):
            book.retract(before[: kept - now], code)
            fresh = NO_PAGES
        else:
            book.retract(before, code)
            fresh = own
        req.own[index] = own
        if not self.kinds[index].positional:
            known = before.tolist()
            book.strange.extend(page for page in own.tolist() if page not in known)
        if len(fresh):
            self._claims.append((req, index, fresh))

    def claim(self) -> None:
        """Second half, once the nodes stand: what became its own, and what it locks of them."""
        for req, index, pages in self._claims:
            self.device[index].claim(pages, code_of(REQUEST, req.id))
        self._claims.clear()
        for req in self._holds:
            for index, before in enumerate(req.held, 1):
                now = self.required(req, index)
                book = self.device[index]
                for pages in before:
                    book.locks[pages] -= 1
                    holder = self.nodes.by_id.get(int(book.owner[pages[0]]) >> 2)
                    if holder is not None:
                        self.nodes.dirty[holder.id] = holder
                for pages in now:
                    book.locks[pages] += 1
                req.held[index - 1] = now
        self._holds.clear()

    def required(self, req: RequestMirror, index: int) -> list[Pages]:
        """What the nodes that the request's boundary requires of a component have on device, less
        those that lie wholly behind the window of what is still to come."""
        depth, kind = req.boundary, self.kinds[index]
        if not 0 < depth <= len(req.tags):
            return []
        least = req.low - kind.need if kind.positional else 0
        found = []
        for mirror in self.nodes.required(index, int(req.tags[depth - 1])):
            pages = mirror.pages[index]
            if pages is not None and mirror.end_page > least:
                found.append(pages)
                self.nodes.dirty[mirror.id] = mirror
        return found

    def admit(self, req: RequestMirror, item: Admitted) -> None:
        """What it reuses, and where the prompt was known to."""
        req.boundary, req.branch_pages = item.device_pages + item.host_pages, item.matched_pages
        req.computed_tokens = min(req.length, req.boundary * self.nodes.page_size)
        req.working = 0 if not req.computed_tokens else -1

    def lower(self, req: RequestMirror, computed: int) -> None:
        """The request has computed that far. What the windows of later tokens, and of a boundary
        that it can still make, have passed is of no use to it."""
        size, interval = self.nodes.page_size, max(kind.interval for kind in self.kinds)
        low, boundary = computed // size, computed // interval * interval // size
        kept = all(min(state.working, *state.checkpoint_slots) >= 0 for state in req.states)
        if boundary > req.boundary and kept:
            low = boundary
        req.low, req.rehold = max(req.low, low), True
