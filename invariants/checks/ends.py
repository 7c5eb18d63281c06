"""Locks, and what is left after a flush and when everything has ended."""

from hicache.core.actions import Prefill, Refused
from hicache.core.events import Flushed
from hicache.core.node import Node
from hicache.core.types import NO_PAGES, PageState
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.shadow import story
from invariants.shadow.pages import NODE, all_are
from invariants.shadow.record import NodeRecord
from invariants.shadow.shadow import Shadow


class LockBalance(Check):
    name = "LOCK-BAL"
    sentence = (
        "A component of a node has, on each tier, exactly one holder for each running request "
        "whose boundary requires it, for each open transfer that locks it and for each pinned "
        "prefix."
    )

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        rows = (*node.locks[0], *node.locks[1])
        if [*map(len, rows)] == record.locked:
            return
        for pages, holders, expected in zip(shadow.pages, rows, record.locked, strict=True):
            if len(holders) != expected:
                names = ", ".join(holder.name for holder in holders.values()) or "nobody"
                self.fail(
                    f"node {node.id}, {pages.where}: expected {expected} holders, found "
                    f"{len(holders)} ({names})",
                    story.node(node.id),
                )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for slot, shadow_of in enumerate(shadow.pages):
            if not shadow_of.locks.any():
                continue
            for record in shadow.nodes.by_id.values():
                pages = record.pages[slot]
                counts = shadow_of.locks[NO_PAGES if pages is None else pages]
                if len(counts) and not all_are(counts, int(counts[0])):
                    self.fail(
                        f"node {record.id}, {shadow_of.where}: its pages are locked by "
                        f"{counts.min()} to {counts.max()} holders, expected one number",
                        story.node(record.id),
                    )


class Reset(Check):
    name = "RESET"
    sentence = "After a flush the core is like a new one, except for pages that actions still use."
    items = (Flushed,)

    def after(self, shadow: Shadow, item: Flushed, view: CoreView) -> None:
        if any(type(other) is Refused for other in shadow.outcomes):
            passes = any(type(item.action) is Prefill for item in shadow.transfers.open.values())
            if not shadow.requests.admitted and not passes:
                self.fail("a flush was refused although no request is admitted and no pass runs")
            return
        queued = sum(len(view.queue_entries(part)) for part in range(6 * shadow.width))
        writing_back = sum(view.writing_back(kind.at) for kind in shadow.kinds)
        waiting = sum(bool(request.prefetch) for request in view.requests.values())
        left = [sum(1 for _ in view.nodes()), queued, writing_back]
        left += waiting, len(view.store_queue), len(view.distrusted)
        if any(left) or len(shadow.nodes.by_id) != 1:
            self.fail(
                "expected no nodes, entries of queues, pages being written back, requests that "
                f"wait for a prefetch, nodes to be stored and distrusted pages, found {left}"
            )


class Quiescence(Check):
    name = "QUIESCENCE"
    sentence = (
        "Once everything is released and all copies have ended, every page is free or cached, and "
        "every cached page that is not pinned can be evicted."
    )
    kind = LIVENESS

    def at_rest(self, shadow: Shadow, view: CoreView) -> None:
        pinned = shadow.pins.pinned()
        for slot, pages in enumerate(shadow.pages):
            pool, cached = pages.pool, pages.owned[NODE]
            most = cached - len(pinned.get(slot, ()))
            if pool.counts[PageState.FREE] + cached != pages.capacity or pool.evictable != most:
                self.fail(
                    f"{pages.where}: free {pool.counts[PageState.FREE]} + cached "
                    f"{cached}, expected {pages.capacity}; evictable {pool.evictable}",
                    story.pool(pages),
                )
        admitted = sum(request.admitted for request in view.requests.values())
        if admitted:
            self.fail(
                f"expected no admitted request, found {admitted}",
                *(story.request(item.id) for item in view.requests.values() if item.admitted),
            )


CHECKS = (LockBalance, Reset, Quiescence)
