"""Whose each page is, how many there are of each kind, and when one may be given away."""

from typing import ClassVar

import numpy as np

from hicache.core.events import BackupDone, FetchDone, Flushed, LoadDone, StoreDone
from hicache.core.types import Pages, PageState, Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.shadow import story
from invariants.shadow.pages import (
    KIND_BITS,
    KIND_MASK,
    NODE,
    STATE_OF,
    PageShadow,
    all_are,
    name_of,
    nothing,
    same,
)
from invariants.shadow.shadow import Shadow

_FREE, _RETIRING = int(PageState.FREE), int(PageState.RETIRING)


class _Ownership(Check):
    tier: ClassVar[Tier]
    of_changes = True

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.changed:
            if pages.tier == self.tier:
                self._changed(pages)

    def _changed(self, pages: PageShadow) -> None:
        where, pool = pages.where, pages.pool
        if pages.clashes:
            clash = pages.clashes[0]
            self.fail(
                f"{where} page {clash.page}: expected {name_of(clash.expected)}, "
                f"found {name_of(clash.actual)}",
                story.page(pages, clash.page),
            )
        for claimed, code in pages.claimed:
            kind, number = code & KIND_MASK, code >> KIND_BITS
            state, states, owners = STATE_OF[kind], pool.state[claimed], pool.owner[claimed]
            if states.tobytes().count(state) < len(claimed) or not all_are(owners, number):
                wrong = (states != state) | (owners != number)
                at = int(claimed[int(wrong.argmax())])
                self.fail(
                    f"{where} page {at} of {name_of(code)}: expected "
                    f"{PageState(state).name} of {number}, found "
                    f"{PageState(int(pool.state[at])).name} of {pool.owner[at]}",
                    story.page(pages, at),
                )
        for gone, state in ((pages.freed, _FREE), (pages.retired, _RETIRING)):
            if not len(gone):
                continue
            states = pool.state[gone]
            if states.tobytes().count(state) < len(gone):
                at = int(gone[int((states != state).argmax())])
                if state == _FREE or pool.state[at] != _FREE:
                    self.fail(  # PIN-IO reports pages that are free but still in use
                        f"{where} page {at}, held by nobody: expected {PageState(state).name}, "
                        f"found {PageState(int(pool.state[at])).name}",
                        story.page(pages, at),
                    )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.pages:
            if pages.tier == self.tier:
                self._all(pages)

    def _all(self, pages: PageShadow) -> None:
        pool, unowned = pages.pool, pages.owner == 0
        free = unowned & (pages.busy == 0)
        listed = pool.free_pages()
        wrong = free != (pool.state == PageState.FREE)
        if wrong.any() or len(listed) != int(free.sum()) or not free[listed].all():
            at = int(wrong.argmax())
            self.fail(
                f"{pages.where} pages free by the shadow state {int(free.sum())}, on the free "
                f"list {len(np.unique(listed))} of {len(listed)}; first difference at page {at}",
                story.page(pages, at),
            )


class OwnDevice(_Ownership):
    name = "OWN-D"
    sentence = "Every device page has one owner (free list, node, request, load) or is retiring."
    tier = Tier.DEVICE


class OwnHost(_Ownership):
    name = "OWN-H"
    sentence = "Every host page has one owner (free list, node, backup, fetch) or is retiring."
    tier = Tier.HOST


class PoolSum(Check):
    name = "POOL-SUM"
    sentence = "free + owned + cached + reserved + retiring == capacity, per pool."

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.pages:
            pool, counts = pages.pool, pages.counts
            settled = pool.counts == counts and pool.free == counts[_FREE]
            if settled and pool.protected == pages.protected:
                continue
            _, requests, nodes, transfers, _ = counts
            retiring = pool.counts[_RETIRING]
            total = pool.free + nodes + requests + transfers + retiring
            self.fail(
                f"{pages.where}: free {pool.free} + owned {requests} + cached {nodes} "
                f"({pages.protected} protected) + reserved {transfers} + retiring {retiring} = "
                f"{total}, capacity {pages.capacity}; the ledger counts {pool.counts} with "
                f"{pool.protected} protected",
                story.pool(pages),
            )


class Generation(Check):
    name = "GENERATION"
    sentence = "A page that becomes free gets a new generation, and no generation ever decreases."
    of_changes = True

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if not shadow.history:
            return
        for pages in shadow.changed:
            free = pages.freed
            if not len(free):
                continue
            now = pages.pool.generation
            stuck = now[free] <= pages.generation[free]
            if b"\1" in stuck.tobytes() and (pages.pool.state[free] == _FREE).all():
                at = int(free[int(stuck.argmax())])
                self.fail(
                    f"{pages.where} page {at} became free: expected a generation above "
                    f"{pages.generation[at]}, found {now[at]}",
                    story.page(pages, at),
                )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.pages:
            now = pages.pool.generation
            if (now < pages.generation).any():
                at = int((now < pages.generation).argmax())
                self.fail(
                    f"{pages.where} page {at}: generation "
                    f"{pages.generation[at]} before, {now[at]} now",
                    story.page(pages, at),
                )


class PinIo(Check):
    name = "PIN-IO"
    sentence = (
        "A page that an unanswered action reads or writes is not free and not reissued until its "
        "reply, or that of the pass that reads what it loads, if that comes first."
    )
    items = (LoadDone, BackupDone, FetchDone, StoreDone)
    of_changes = True

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.changed:
            used = pages.retired
            if not len(used):
                continue
            free = pages.pool.state[used] == _FREE
            if np.count_nonzero(free):
                at = int(used[int(free.argmax())])
                self.fail(
                    f"{pages.where} page {at} is used by {pages.busy[at]} unanswered "
                    "actions: expected RETIRING, found FREE",
                    story.page(pages, at),
                )

    def before(
        self, shadow: Shadow, item: LoadDone | BackupDone | FetchDone | StoreDone, view: CoreView
    ) -> None:
        transfer = shadow.transfers.open.get(item.transfer)
        if transfer is None or transfer.landed:
            return
        for move, generations in zip(transfer.moves, transfer.generations, strict=True):
            for tier, used, before in zip(
                transfer.tiers, (move.source, move.target), generations, strict=True
            ):
                pages = shadow.pool(tier, move.at)
                now = pages.pool.generation[used]
                if not same(now, before):
                    at = int((now != before).argmax())
                    self.fail(
                        f"{pages.where} page {used[at]} of transfer {item.transfer}: expected "
                        f"generation {before[at]} until the reply, found {now[at]}",
                        story.page(pages, int(used[at])),
                        story.transfer(item.transfer),
                    )


class PinNode(Check):
    name = "PIN-NODE"
    sentence = "A locked node is not removed and does not lose its locked pages."

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for record in shadow.nodes.gone:
            node = record.node
            if node is not None and type(shadow.event) is not Flushed:
                totals = [sum(map(len, node.locks[tier])) for tier in (0, 1)]
                if any(totals):
                    self.fail(
                        f"node {record.id} left the tree with {totals[0]} device and {totals[1]} "
                        "host holders, expected 0 and 0",
                        story.node(record.id),
                    )
        for pages in shadow.changed:
            taken = [claimed for claimed, code in pages.claimed if code & KIND_MASK != NODE]
            for lost in (pages.freed, pages.retired, *taken):
                if len(lost):
                    self._unlocked(pages, lost)

    def _unlocked(self, pages: PageShadow, lost: Pages) -> None:
        """Pages that no node owns any more must not be locked."""
        locks = pages.locks[lost]
        if not nothing(locks):
            at = int(lost[int(locks.argmax())])
            self.fail(
                f"{pages.where} page {at} left its node under {pages.locks[at]} locks, expected 0",
                story.page(pages, at),
            )


CHECKS = (OwnDevice, OwnHost, PoolSum, Generation, PinIo, PinNode)
