"""Actions and their replies, and who may read or write a page meanwhile."""

from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Backup, Fetch, Load, Prefill, Store
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.shadow import story
from invariants.shadow.pages import KIND_BITS, KIND_MASK, NODE, PageShadow, nothing
from invariants.shadow.record import NodeRecord
from invariants.shadow.shadow import Shadow
from invariants.shadow.transfers import ACTION_OF


class LiveAck(Check):
    name = "LIVE-ACK"
    sentence = (
        "Every action has its own transfer number, is answered exactly once by its own kind of "
        "reply, and is in flight until then. Nothing is loaded by two at once. What a backup "
        "copied is on host; with exchanges, what was loaded leaves it."
    )
    kind = LIVENESS
    items = (*ACTION_OF, *ACTION_OF.values())

    def before(self, shadow: Shadow, item: object, view: CoreView) -> None:
        number: int = item.transfer  # type: ignore[attr-defined]
        wanted = ACTION_OF.get(type(item))
        if wanted is None:
            settled = shadow.transfers.settled
            if number <= settled or any(number == item.id for item in shadow.transfers.fresh):
                self.fail(
                    f"transfer {number}: expected a number above {settled}, not used in this "
                    f"operation",
                    story.transfer(number),
                )
            for other in shadow.transfers.open.values() if type(item) is Load else ():
                loads = type(other.action) is Load and not other.landed
                for move, now in product(other.moves, shadow.moves) if loads else ():
                    if move.at == now.at and np.isin(now.source, move.source).any():
                        self.fail(f"{number} loads what {other.id} does", story.transfer(number))
            return
        transfer = shadow.transfers.open.get(number)
        if transfer is not None and type(transfer.action) is not wanted:
            self.fail(
                f"transfer {number}: expected the reply to a "
                f"{type(transfer.action).__name__}, found {type(item).__name__}",
                story.transfer(number),
            )

    def after(self, shadow: Shadow, item: object, view: CoreView) -> None:
        if type(item) in ACTION_OF and shadow.answered is None:
            number: int = item.transfer  # type: ignore[attr-defined]
            self.fail(f"transfer {number} was answered, but was not open", story.transfer(number))
        if not getattr(item, "ok", False) or type(item) not in (LoadDone, BackupDone):
            return
        tier, done = Tier.HOST if type(item) is LoadDone else Tier.DEVICE, shadow.answered
        for move, (before, _) in zip(done.moves, done.generations, strict=True) if done else ():
            pages = shadow.pool(tier, move.at)
            kept = move.source[pages.pool.generation[move.source] == before]
            for code in {*pages.owner[kept].tolist()}:
                if code & KIND_MASK == NODE:
                    self._landed(shadow, shadow.nodes.by_id[code >> KIND_BITS], move.at, tier)

    def _landed(self, shadow: Shadow, record: NodeRecord, at: int, tier: Tier) -> None:
        above, slot = record.parent or record, shadow.width + at
        twice = record.pages[at] is not None and not record.locked[slot]
        first = above.parent is None or above.pages[slot] is not None
        lacks = not at and first and record.pages[slot] is None and shadow.writes.contiguous
        if (shadow.config.exchange_pages and twice) if tier == Tier.HOST else lacks:
            self.fail(f"node {record.id} was copied in vain", story.node(record.id))

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if shadow.history and view.transfers.keys() != shadow.transfers.open.keys():
            odd = min(view.transfers.keys() ^ shadow.transfers.open.keys())
            self.fail(f"transfer {odd} is in flight for only one side", story.transfer(odd))

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        """Host pages that loads are to give up are those that loads in flight read."""
        if not shadow.config.exchange_pages:
            return
        for kind in shadow.kinds:
            loads = [item for item in shadow.transfers.open.values() if type(item.action) is Load]
            moves = [move for load in loads for move in load.moves if move.at == kind.at]
            expected, result = sum(len(move.source) for move in moves), view.giving_up(kind.at)
            if expected != result:
                self.fail(f"host {kind.name}: expected {expected} pages given up, found {result}")

    def at_rest(self, shadow: Shadow, view: CoreView) -> None:
        writing_back = sum(view.writing_back(kind.at) for kind in shadow.kinds)
        if view.transfers or writing_back:
            self.fail(
                f"expected nothing in flight at quiescence, found {len(view.transfers)} transfers "
                f"and {writing_back} pages being written back"
            )


_Moving: TypeAlias = Load | Backup | Prefill | Fetch | Store


class HappensBeforeWrite(Check):
    name = "HB-WRITE"
    sentence = (
        "An action writes only pages that no unanswered action reads or writes, except that a pass "
        "goes on where an unanswered pass of its request ends."
    )
    items = (Load, Backup, Prefill, Fetch, Store)

    def before(self, shadow: Shadow, item: _Moving, view: CoreView) -> None:
        before = shadow.passes_before(item)
        for use in shadow.uses:
            pages = shadow.pool(Tier.DEVICE, use.at)
            busy = pages.busy[use.writes]
            for own in (item for transfer in before for item in transfer.uses if item.at == use.at):
                harmless = ~np.isin(use.writes, own.writes)
                harmless[:1] = True  # the page where it goes on, or the working state
                busy = busy - (np.isin(use.writes, own.busy) & harmless)
            self._nobody_else(shadow, item, pages, use.writes, busy)
        tier = Tier.DEVICE if type(item) is Load else Tier.HOST
        for move in shadow.moves:
            pages = shadow.pool(tier, move.at)
            self._nobody_else(shadow, item, pages, move.target, pages.busy[move.target])

    def _nobody_else(
        self,
        shadow: Shadow,
        item: _Moving,
        pages: PageShadow,
        target: Pages,
        busy: NDArray[np.int32],
    ) -> None:
        if not nothing(busy):
            at = int(target[int((busy > 0).argmax())])
            others = [
                item.id
                for item in shadow.transfers.open.values()
                if any(move.at == pages.component and _uses(at, move[1:3]) for move in item.moves)
                or any(use.at == pages.component and _uses(at, use[1:]) for use in item.uses)
            ]
            self.fail(
                f"transfer {item.transfer} writes {pages.where} page {at}: expected 0 unanswered "
                f"actions on it, found {int(busy.max())} (transfers {others})",
                story.page(pages, at),
                story.transfer(item.transfer),
            )


def _uses(page: int, arrays: tuple[Pages, ...]) -> bool:
    return any(page in pages for pages in arrays)


class ReadAfterArrive(Check):
    name = "READ-AFTER-ARRIVE"
    sentence = (
        "A page that an unanswered action writes is read only by a prefill that waits for that "
        "action, or goes on where it ends."
    )
    items = (Load, Backup, Prefill, Fetch, Store)

    def before(self, shadow: Shadow, item: _Moving, view: CoreView) -> None:
        after = item.after if type(item) is Prefill else ()
        after += tuple(transfer.id for transfer in shadow.passes_before(item))
        for use in shadow.uses:
            self._arrived(item, after, shadow.pool(Tier.DEVICE, use.at), use.reads)
        tier = Tier.DEVICE if type(item) is Backup else Tier.HOST
        for move in shadow.moves:
            self._arrived(item, after, shadow.pool(tier, move.at), move.source)

    def _arrived(
        self, item: _Moving, after: tuple[int, ...], pages: PageShadow, source: Pages
    ) -> None:
        writers = pages.writer[source]
        if nothing(writers):
            return
        awaited = writers > 0
        for known in after:
            awaited &= writers != known
        if awaited.any():
            at = int(awaited.argmax())
            self.fail(
                f"transfer {item.transfer} reads {pages.where} page {source[at]} after "
                f"{list(after)}: expected also after transfer {writers[at]}, which writes it",
                story.page(pages, int(source[at])),
                story.transfer(int(writers[at])),
            )


CHECKS = (LiveAck, HappensBeforeWrite, ReadAfterArrive)
