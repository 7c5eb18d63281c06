"""The shadow state's record of requests: tags of their prompts, tables, owned pages, locks, and
committed bytes.

Lives here: retracting old and claiming new facts of requests on the device page shadow state.

    by position   |--- shared: nodes' pages, or a load's ---|--- own (-1: none) ---|
    a state       working slot, checkpoint slots 0 and 1: all its own

The locks of a request follow from its history. It locks the backbone of everything that it shares.
Of another component it locks the nodes on device that its *boundary* requires: the boundary of its
admission, later that of its last insertion. As it decodes, it releases pages that its window has
passed.
"""

from collections.abc import Sequence

from hicache.core.actions import Admitted, StateSlots
from hicache.core.node import Request
from hicache.core.types import NO_PAGES, Key, Pages, RequestId, TransferId

from .kinds import Kind
from .nodes import NodeShadow
from .pages import KIND_BITS, REQUEST, PageShadow, code_of, same
from .tags import POISON, Tags, tags_of


class RequestRecord:
    """One request, waiting or admitted. tags: tags of the prompt's pages."""

    __slots__ = (
        *("admitted", "boundary", "computed_tokens", "handed", "id", "key", "known", "length"),
        *("load", "locked_pages", "low", "match_pages", "own", "passes", "refilled_at_tokens"),
        *("rehold", "shared_pages", "states", "tables", "tags", "working"),
    )

    def __init__(
        self, request: RequestId, key: Key, length: int, match_pages: int, width: int
    ) -> None:
        self.id = request
        self.length = length
        self.match_pages = match_pages
        self.key = key
        self.tags: Tags = tags_of(key)
        self.known: Tags = self.tags[:match_pages]
        self.vacate(width)

    def vacate(self, width: int) -> None:
        self.admitted = False
        self.computed_tokens = 0  # tokens whose bytes are in its pages
        self.low = 0  # in pages: it holds nothing behind the window at this depth
        self.boundary = 0  # in pages: it locks the nodes that this boundary requires
        self.rehold = False  # its boundary or the nodes of it changed
        self.shared_pages: Pages = NO_PAGES  # backbone pages that it locks
        self.tables: list[Pages] = [NO_PAGES] * width
        self.own: list[Pages] = [NO_PAGES] * width
        self.locked_pages: list[list[Pages]] = [[] for _ in range(width - 1)]
        self.passes: list[TransferId] = []  # in the order in which they began
        self.load: TransferId = 0
        self.states: tuple[StateSlots, ...] = ()  # as last reported
        self.refilled_at_tokens = 0  # maximum computed tokens when a checkpoint slot was assigned
        self.working = 0  # tokens in its working states, -1 if unknown
        self.handed: tuple[tuple[Pages, bytes], ...] = ()  # tables last reported, and copies


def own_of(table: Pages, kind: Kind, shared: int) -> Pages:
    """Device pages of a component that a request owns. shared: leading positions that it does
    not own.
    """
    own = table[shared:] if kind.positional else table
    if kind.at and len(own) and own.min() < 0:
        own = own[own >= 0]
        own.flags.writeable = False
    return own


class RequestShadow:
    """All requests of the core."""

    def __init__(
        self, device: list[PageShadow], kinds: tuple[Kind, ...], nodes: NodeShadow
    ) -> None:
        self.device = device
        self.kinds = kinds
        self.nodes = nodes
        self.by_id: dict[RequestId, RequestRecord] = {}
        self.admitted = 0
        self.interval = max(kind.interval for kind in kinds)
        self._claims: list[tuple[RequestRecord, int, Pages]] = []
        self._holds: list[RequestRecord] = []

    def leave(self, req: RequestRecord, keep_locks: bool) -> list[list[Pages]]:
        """Releases everything that a request owns.

        Returns, per component, the pages that it locked. keep_locks: do not release the locks,
        because its pass takes them over.
        """
        locked = [[req.shared_pages], *req.locked_pages]
        code = code_of(REQUEST, req.id)
        for index, shadow in enumerate(self.device):
            shadow.retract(req.own[index], code)
            if not keep_locks:
                for pages in locked[index]:
                    shadow.locks[pages] -= 1
        if req.admitted:
            self.admitted -= 1
        req.vacate(len(self.kinds))
        return locked

    def retract(self, req: RequestRecord, request: Request, awaited: int) -> None:
        """First half of an operation: releases pages that the request no longer owns. awaited:
        number of shared positions at the end that a load has not filled yet.
        """
        for index, kind in enumerate(self.kinds):
            table = request.tables[index]
            if table is not req.tables[index] or kind.positional:
                self._own(req, index, own_of(table, kind, req.boundary))
            req.tables[index] = table
        shadow = self.device[0]
        shared = req.tables[0][: req.boundary - awaited]
        count = len(req.shared_pages)
        if len(shared) >= count and same(shared[:count], req.shared_pages):
            if len(shared) > count:
                shadow.locks[shared[count:]] += 1
        else:
            shadow.locks[req.shared_pages] -= 1
            shadow.locks[shared] += 1
        req.shared_pages = shared
        if req.rehold:
            req.rehold = False
            if req.locked_pages:
                self._holds.append(req)

    def _own(self, req: RequestRecord, index: int, own: Pages) -> None:
        before, shadow, code = req.own[index], self.device[index], code_of(REQUEST, req.id)
        kept, now = len(before), len(own)
        if now >= kept and same(own[:kept], before):
            fresh = own[kept:]
        elif now < kept and same(before[kept - now :], own):
            shadow.retract(before[: kept - now], code)
            fresh = NO_PAGES
        else:
            shadow.retract(before, code)
            fresh = own
        req.own[index] = own
        if not self.kinds[index].positional:
            known = before.tolist()
            shadow.strange.extend(page for page in own.tolist() if page not in known)
        if len(fresh):
            self._claims.append((req, index, fresh))

    def claim(self) -> None:
        """Second half, after the nodes: claims new pages, and updates the locks on nodes."""
        for req, index, pages in self._claims:
            self.device[index].claim(pages, code_of(REQUEST, req.id))
        self._claims.clear()
        for req in self._holds:
            for index, before in enumerate(req.locked_pages, 1):
                now = self.required(req, index)
                shadow = self.device[index]
                for pages in before:
                    shadow.locks[pages] -= 1
                    holder = self.nodes.by_id.get(int(shadow.owner[pages[0]]) >> KIND_BITS)
                    if holder is not None:
                        self.nodes.dirty[holder.id] = holder
                for pages in now:
                    shadow.locks[pages] += 1
                req.locked_pages[index - 1] = now
        self._holds.clear()

    def required(self, req: RequestRecord, index: int) -> list[Pages]:
        """Returns the device pages of the nodes that the request's boundary requires of a
        component, without nodes that lie completely behind the window of its next tokens.
        """
        depth, kind = req.boundary, self.kinds[index]
        if not 0 < depth <= len(req.tags):
            return []
        least = req.low - kind.need if kind.positional else 0
        arrays = []
        for record in self.nodes.required(index, int(req.tags[depth - 1])):
            pages = record.pages[index]
            if pages is not None and record.end_page > least:
                arrays.append(pages)
                self.nodes.dirty[record.id] = record
        return arrays

    def admit(self, req: RequestRecord, item: Admitted) -> None:
        """Files the boundary that an admission reuses."""
        req.boundary = item.device_pages + item.host_pages
        self.admitted += not req.admitted
        req.admitted = True
        req.computed_tokens = min(req.length, req.boundary * self.nodes.page_size)
        req.working = 0 if not req.computed_tokens else -1

    def lower(self, req: RequestRecord, computed: int) -> None:
        """Files that the request has computed this many tokens. It releases what is behind the
        windows of later tokens and of a boundary that it can still make.
        """
        size, interval = self.nodes.page_size, self.interval
        low, boundary = computed // size, computed // interval * interval // size
        kept = all(min(state.working, *state.checkpoint_slots) >= 0 for state in req.states)
        if boundary > req.boundary and kept:
            low = boundary
        req.low, req.rehold = max(req.low, low), True


def commit(
    req: RequestRecord,
    tags: Tags,
    length: int,
    device: Sequence[PageShadow],
    kinds: Sequence[Kind],
    page_size: int,
) -> int:
    """Files the content of decoded pages and states when a request leaves.

    After the tokens that prefills computed, the engine guarantees the bytes by position, and the
    states that decoding left in the checkpoint slots. Returns the page at which all of these are,
    if the windows before it are complete; else 0.
    """
    ends: set[int] = set()
    known = min(req.computed_tokens // page_size, len(req.tags))
    pages = min(len(tags), len(req.tables[0]))
    states = iter(req.states)
    for kind in kinds:
        shadow = device[kind.at]
        if not kind.positional:
            state = next(states, None)
            ends.add(_left_in_checkpoint_slots(shadow, state, req, tags, length, page_size))
        elif pages > known:
            table = req.tables[kind.at][known:pages]
            shadow.content[table[table >= 0]] = tags[known:pages][table >= 0]
    end = ends.pop() if len(ends) == 1 else 0
    windows = [kind for kind in kinds[1:] if kind.positional]
    behind = (req.tables[kind.at][max(0, end - kind.need) : end] for kind in windows)
    return end if all((table >= 0).all() for table in behind) else 0


def note_checkpoint_slots(req: RequestRecord, states: tuple[StateSlots, ...], filled: int) -> None:
    """Files the checkpoint slots of a request.

    A new slot cannot hold the state of an earlier depth. room: maximum number of tokens that were
    computed when the slot was assigned.
    """
    known = [page for state in req.states for page in state.checkpoint_slots]
    fresh = [page for state in states for page in state.checkpoint_slots if page >= 0]
    if req.states and any(page not in known for page in fresh):
        req.refilled_at_tokens = max(req.refilled_at_tokens, filled)
    req.states = states


def _left_in_checkpoint_slots(
    shadow: PageShadow,
    state: StateSlots | None,
    req: RequestRecord,
    tags: Tags,
    length: int,
    page_size: int,
) -> int:
    """Files the state that decoding left in the checkpoint slots. Returns the page at its end, or 0
    if there is none.

    Decoding writes a state at each multiple of the interval, into the two slots by turns. The
    content of the other slot is unknown, because a later step may have written it.
    """
    if state is None or req.computed_tokens < req.length:
        return 0
    turn = length // state.interval
    depth, last = turn * state.interval, state.checkpoint_slots[turn % 2]
    other = state.checkpoint_slots[1 - turn % 2]
    if other >= 0:
        shadow.content[other] = POISON
    if last < 0 or depth <= req.computed_tokens:
        return 0
    fine = depth > req.refilled_at_tokens and depth <= len(tags) * page_size
    shadow.content[last] = tags[depth // page_size - 1] if fine else POISON
    return depth // page_size if fine else 0
