"""A refusal is followed by progress, or says truly why there is none."""

from dataclasses import dataclass

from hicache.core.actions import Admitted, Cached, Granted, Load, Prefill, Refused, Released
from hicache.core.events import AdmitWanted, Event, PagesWanted
from hicache.core.types import RequestId, Tier, TransferId
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.shadow import story
from invariants.shadow.pages import KIND_MASK, NODE
from invariants.shadow.shadow import Shadow


@dataclass(slots=True)
class Waiting:
    """A refusal that names a reply. transfers: the actions that were open. known: how many pages of
    its prefix each pool had. room: pages of the pool that were available after the last event.
    taken: whether others took some since. turns: how often it was answered in this way with nothing
    taken meanwhile. most: the bound on that."""

    event: Event
    refusal: Refused
    transfers: frozenset[TransferId]
    known: tuple[int, ...]
    room: int
    most: int
    taken: bool = False
    turns: int = 0


class Progress(Check):
    name = "PROGRESS"
    sentence = (
        "Once the replies came that a refusal waits for, and nothing was taken meanwhile, there "
        "are as many pages as it needed, and it is not refused again unless it begins another "
        "write-back, at most as often as there are cached pages; a refusal as arriving names a "
        "load of the request's own prefix; one as too large is of more pages than the pool has."
    )
    kind = LIVENESS
    sees = (Refused, Admitted, Granted, Prefill, Released)

    def __init__(self) -> None:
        self._waiting: dict[RequestId, Waiting] = {}

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for number, waiting in self._waiting.items() if shadow.history else ():
            pages = shadow.pages[shadow.index_of(waiting.refusal.component)]
            room = pages.pool.available
            took = room < waiting.room or any(code & KIND_MASK != NODE for _, code in pages.claimed)
            waiting.taken |= took and getattr(shadow.event, "request", -1) != number
            # another request may have locked what was to become available
            waiting.taken |= any(
                isinstance(item, Admitted | Cached) and item.request != number
                for item in shadow.outcomes
            )
            waiting.room = room

    def see(self, shadow: Shadow, item: object, view: CoreView) -> None:
        number: RequestId = item.request  # type: ignore[attr-defined]
        if type(item) is not Refused:
            self._waiting.pop(number, None)
            return
        if item.reason == "too_large":
            self._too_large(shadow, item)
        elif item.reason == "arriving":
            self._arriving(shadow, item)
        elif item.reason == "no_pages" and item.available >= item.needed:
            self.fail(
                f"request {number}: no pages, of {item.needed} {item.component} pages needed and "
                f"{item.available} available",
                story.request(number),
            )
        before, req = self._waiting.pop(number, None), shadow.requests.by_id.get(number)
        turns, most = 0, sum(pages.owned[NODE] for pages in shadow.pages[: shadow.width])
        if before and not before.taken and before.transfers.isdisjoint(shadow.transfers.open):
            turns = self._again(shadow, before, item)
            most = before.most if turns else most
        if item.after and req is not None and item.reason != "fetching":
            transfers, known = frozenset(shadow.transfers.open), shadow.nodes.known(req.known)
            room = shadow.pages[shadow.index_of(item.component)].pool.available
            self._waiting[number] = Waiting(
                shadow.event, item, transfers, known, room, most, turns=turns
            )

    def _again(self, shadow: Shadow, before: Waiting, item: Refused) -> int:
        """The request was refused again, and everything that was open then has been answered.
        Returns how often this happened in a row."""
        then = before.refusal
        req = shadow.requests.by_id.get(item.request)
        same = req is not None and before.known == shadow.nodes.known(req.known)
        if (
            not same
            or before.event != shadow.event
            or item.component != then.component
            or item.needed > then.needed
        ):
            return 0
        if then.reason == "arriving" != item.reason:
            return 0  # that a load arrives promises no pages for the rest
        turns, fresh, now = before.turns + 1, shadow.transfers.fresh, shadow.transfers.open
        if item.available >= item.needed and len(now) > len(fresh):
            return 0  # it may wait for a copy that began meanwhile
        after = now.get(item.after)
        if after is not None and item.after not in before.transfers and after not in fresh:
            return 0  # it waits for a copy that an eviction of somebody else began
        if not fresh or turns > before.most:
            self.fail(
                f"request {item.request}: refused ({then.reason}) until transfer {then.after} was "
                f"answered, and again ({item.reason}), {turns} times in a row: needed "
                f"{item.needed} {item.component} pages, available {item.available}; nothing was "
                f"taken, and expected are at most {before.most} turns, each of which begins a copy",
                story.request(item.request),
            )
        return turns

    def _too_large(self, shadow: Shadow, item: Refused) -> None:
        req = shadow.requests.by_id.get(item.request)
        event = shadow.event
        tokens = event.length if type(event) is PagesWanted else req.length if req else 0
        pinned = shadow.pins.pinned().get(0, ())
        needed, capacity = -(-tokens // shadow.page_size), shadow.device.capacity - len(pinned)
        if needed <= capacity or shadow.index_of(item.component):
            self.fail(
                f"request {item.request}: too large with {needed} pages of {capacity}",
                story.request(item.request),
            )

    def _arriving(self, shadow: Shadow, item: Refused) -> None:
        """The load that it waits for brings a page of its prefix."""
        req = shadow.requests.by_id.get(item.request)
        transfer = shadow.transfers.open.get(item.after)
        if req is None or transfer is None or type(transfer.action) is not Load:
            return
        known = set(req.known.tolist())
        for move in transfer.moves:
            tags = shadow.pool(Tier.HOST, move.at).content[move.source].tolist()
            if type(shadow.event) is AdmitWanted and not known.isdisjoint(tags):
                return
        self.fail(
            f"request {item.request} waits for transfer {item.after}, which brings nothing of its "
            f"{len(known)} pages",
            story.request(item.request),
            story.transfer(item.after),
        )


CHECKS = (Progress,)
