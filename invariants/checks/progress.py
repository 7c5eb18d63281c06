"""A refusal says truly what makes it come true, or why nothing does."""

from collections import Counter

import numpy as np

from hicache.core.actions import Backup, Load, Refused
from hicache.core.events import AdmitWanted, PagesWanted
from hicache.core.types import Tier, TransferId
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.shadow import story
from invariants.shadow.pages import KIND_BITS, KIND_MASK, NODE
from invariants.shadow.shadow import Shadow
from invariants.shadow.transfers import TransferRecord


class Progress(Check):
    name = "PROGRESS"
    sentence = (
        "A refusal for lack of pages names the first reply with which there are enough, or none if "
        "there is none; one as arriving names a load of the request's own prefix; one as too large "
        "is of more pages than the pool has."
    )
    kind = LIVENESS
    items = (Refused,)

    def after(self, shadow: Shadow, item: Refused, view: CoreView) -> None:
        if item.reason == "too_large":
            self._too_large(shadow, item)
        elif item.reason == "arriving":
            self._arriving(shadow, item)
        elif item.reason in ("no_pages", "writing_back"):
            after = self._reply(shadow, item, view)
            if item.after != after or (item.available >= item.needed and not after):
                self.fail(
                    f"request {item.request} waits for transfer {item.after}, expected {after}: "
                    f"{item.needed} {item.component} pages needed, {item.available} available",
                    story.request(item.request),
                )

    def _reply(self, shadow: Shadow, item: Refused, view: CoreView) -> TransferId:
        """The first reply with which enough pages are available. If they are already, then the
        first with which enough were written back, else of a copy that holds back the rest."""
        at, admits = shadow.index_of(item.component), type(shadow.event) is AdmitWanted
        if admits and shadow.width > 1 and shadow.outcomes[1:]:
            return item.after  # whether it was to load is for the specification to say
        pages, need = shadow.pages[at], shadow.kinds[at].need
        holds, last = np.zeros_like(pages.locks), np.zeros_like(pages.owner)
        opened = shadow.transfers.open
        backups = {number: 0 for number, each in opened.items() if type(each.action) is Backup}
        for number, transfer in opened.items():
            used = [use.busy for use in transfer.uses if use.at == at]
            if number in backups and view.transfers[number].frees[at]:
                backups[number] = _of_its_nodes(shadow, transfer, at)
            for move in (move for move in transfer.moves if move.at == at):
                if number in backups:
                    used.append(move.source)
                elif type(transfer.action) is Load and transfer.request < 0:
                    last[move.target] = (shadow.transfers.reader(transfer) or transfer).id
            for some in used:
                last[some[pages.owner[some] == 0]] = number
            locks = [some for slot, some in transfer.locks if slot == at]
            for some in (*locks, *(transfer.locked[at] if transfer.locked else ())):
                holds[some] += 1
                last[some] = number
        req = shadow.requests.by_id.get(item.request)
        if admits and req is not None:  # it would lock these
            end = shadow.nodes.reach(req.known).device
            for record, depth in shadow.nodes.path_of(req.known[:end]):
                if (own := record.pages[at]) is not None and depth > end - need:
                    last[own[: depth - record.end_page + record.span]] = 0
        coming: Counter[TransferId] = Counter(last[(last > 0) & (holds == pages.locks)].tolist())
        free, after, replies = item.available, 0, dict(sorted(coming.items()))
        if free >= item.needed:
            free, replies = pages.pool.free, {key: value for key, value in backups.items() if value}
            after = next(reversed(replies), next((key for key in backups if key in coming), 0))
        for number, count in replies.items():
            free += count
            if free >= item.needed:
                return number
        return after

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


def _of_its_nodes(shadow: Shadow, backup: TransferRecord, at: int) -> int:
    """How many device pages of a component the nodes have of which it copies any component."""
    owners = [shadow.pages[move.at].owner[move.source] for move in backup.moves]
    codes = {code for some in owners for code in some.tolist() if code & KIND_MASK == NODE}
    known = [shadow.nodes.by_id[code >> KIND_BITS].pages[at] for code in codes]
    return sum(len(some) for some in known if some is not None)


CHECKS = (Progress,)
