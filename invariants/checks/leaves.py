"""A pass makes every boundary and state that it can for later requests."""

from __future__ import annotations

from hicache.core.actions import Cached, Evicted, Granted, Prefill, StateSlots
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.requests import RequestMirror
from invariants.books.story import request
from invariants.reasons import Reason


class Leaves(Check):
    name = "LEAVES"
    sentence = (
        "A pass stores states at its last boundary and where its prompt was known to, as far as "
        "it has checkpoint slots; the deepest boundary for which it has everything is made; a "
        "missing checkpoint slot is taken as soon as one is free."
    )
    watches = (Prefill, Cached, Granted)

    def __init__(self) -> None:
        super().__init__()
        self._planned: dict[int, Prefill] = {}  # the last pass of each request

    def see(self, book: Book, item: Prefill | Cached | Granted, view: CoreView) -> None:
        req = book.requests.by_id.get(item.request)
        if req is None:
            return
        if type(item) is Prefill:
            self._planned[item.request] = item
            self._plan(book, req, item)
            return
        self._filled(book, item.states, item.request)
        plan = self._planned.get(item.request)
        if type(item) is Cached and plan is not None:
            self._made(book, req, item, plan)

    def _plan(self, book: Book, req: RequestMirror, item: Prefill) -> None:
        if not item.states:
            return
        size, step = book.page_size, _interval(book)
        last = _last(book, req, item.end_token)
        depths = {last, req.branch_pages * size // step * step}
        made = sorted(depth for depth in depths if item.start_token < depth <= last)
        for slots in item.states:
            turn = made[-1] // slots.interval % 2 if made else 0
            in_turn = (slots.checkpoint_slots[turn], slots.checkpoint_slots[1 - turn])
            wanted = [
                (depth, slot) for depth, slot in zip(made[::-1], in_turn, strict=False) if slot >= 0
            ]
            if slots.checkpoints != tuple(sorted(wanted)):
                self.fail(
                    f"request {item.request}, pass over {item.start_token}..{item.end_token}: "
                    f"expected {slots.component} states {sorted(wanted)}, found "
                    f"{slots.checkpoints}",
                    request(item.request),
                )

    def _filled(self, book: Book, states: tuple[StateSlots, ...], number: int) -> None:
        for slots in states:
            late = sum(  # what was evicted by this event may have come too late
                len(one.pages)
                for one in book.outcomes
                if type(one) is Evicted and one.tier == 0 and one.component == slots.component
            )
            free = book.pages[book.index_of(slots.component)].free - late
            if free > 0 and -1 in slots.checkpoint_slots:
                self.fail(
                    f"request {number}: {free} slots of {slots.component} are free, and its "
                    f"checkpoint slots are {slots.checkpoint_slots}",
                    request(number),
                )

    def _made(self, book: Book, req: RequestMirror, item: Cached, plan: Prefill) -> None:
        deepest = _last(book, req, plan.end_token) // book.page_size
        if item.pages >= deepest or plan.end_token != req.computed_tokens:
            return
        for kind in book.kinds[1:]:
            reason = _lacking(book, req, plan, kind, deepest)
            if reason:
                self.excuse(reason)
                return
        self.fail(
            f"request {item.request}: expected a boundary at page {deepest}, for which it has "
            f"everything, found {item.pages}",
            request(item.request),
        )


def _interval(book: Book) -> int:
    return max(kind.interval for kind in book.kinds)


def _last(book: Book, req: RequestMirror, end: int) -> int:
    """The deepest depth in tokens at which a pass up to `end` can make a boundary."""
    step = _interval(book)
    return min(end, len(req.tags) * book.page_size) // step * step


def _lacking(
    book: Book, req: RequestMirror, plan: Prefill, kind: Kind, depth: int
) -> Reason | None:
    """What the request may have lacked of this component for a boundary at page `depth`; None if
    it surely had everything.
    """
    if kind.positional:
        table = req.tables[kind.at][max(0, depth - kind.need) : depth]
        return None if (table >= 0).all() else Reason.INCOMPLETE_WINDOW
    on_evict = book.writes.on_evict
    spare = 0 if on_evict else book.idle_before[kind.at]
    room = book.free_before[kind.at] + spare  # pages that the insertion itself frees come too late
    left = [at for one in plan.states if one.component == kind.name for at, _ in one.checkpoints]
    if depth * book.page_size not in left:
        return Reason.NO_STATE_SLOT
    return None if room else Reason.NO_NEXT_SLOT


def check() -> Leaves:
    return Leaves()
