"""Backups that the write policy guarantees, and what became of them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Backup, Cached, Evicted, Released
from hicache.core.events import AdmitWanted, BackupDone, TimePassed
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import NODE
from invariants.books.story import flight, node, page
from invariants.books.tickets import Move, Ticket
from invariants.checks._backups import missing, path_of, put_off
from invariants.checks._storage import locked_beside
from invariants.checks._victims import book_of, decided_by, demoted, depths, kept_free, known
from invariants.reasons import Reason


class Durable(Check):
    name = "DURABLE"
    sentence = (
        "A copy to host that was made stays there until it is evicted: at rest, everything that "
        "a use began to copy is on host, unless the copy failed; a successful copy is published "
        "where the policy lets it be. Under a policy that backs up on eviction, no copy that "
        "serves a boundary leaves the device without a host copy while host has room."
    )
    watches = (Evicted, BackupDone, Cached, Released)

    def __init__(self) -> None:
        super().__init__()
        self._operation = -1
        # by component: prefix, why what a use made due is not on host; None: it is to be there
        self._due: defaultdict[int, dict[int, Reason | None]] = defaultdict(dict)
        self._refused: set[int] = set()  # prefixes that could not be written back, until used again

    def see(
        self, book: Book, item: Evicted | BackupDone | Cached | Released, view: CoreView
    ) -> None:
        if type(item) is BackupDone:
            if book.answered is not None:
                self._ended(book, item, book.answered)
        elif type(item) is Evicted:
            self._gone(book, item)
        else:
            self._used(book, path_of(book, item))  # type: ignore[arg-type]

    def _used(self, book: Book, path: list[NodeMirror]) -> None:
        """Files what a use of this path made due."""
        for mirror in path if self._refused else ():
            self._refused.difference_update(mirror.tags.tolist())
        if not book.writes.threshold or not book.config.has_host:
            return
        lacking = [(mirror, index) for mirror in path for index in missing(book, mirror)]
        if lacking:
            self._make_due(book, lacking)

    def _make_due(self, book: Book, lacking: list[tuple[NodeMirror, int]]) -> None:
        under_way = put_off(book)
        for mirror, index in lacking:
            begun = (index, mirror.id) in under_way.copied
            reason = None if begun else under_way.reason or Reason.NO_ROOM
            tags = (mirror.tags if book.kinds[index].positional else mirror.tags[-1:]).tolist()
            due = self._due[index]
            if mirror.hits >= book.writes.threshold:
                due.update(dict.fromkeys(tags, reason))
                continue
            for tag in tags if due else ():
                due.pop(tag, None)

    def _ended(self, book: Book, item: BackupDone, ticket: Ticket) -> None:
        for move in ticket.moves:
            source, host = book.pool(Tier.DEVICE, move.at), book.pool(Tier.HOST, move.at)
            lost = (host.owner[move.target] & 3 != NODE) & ~self._there(book, move)
            tags = source.content[move.source][lost]
            if not len(tags):
                continue
            if not item.ok:
                reason = Reason.FAILED
                if ticket.evicts:
                    self._refused.update(tags.tolist())
            else:
                reason = self._not_published(book, ticket, move, int(lost.argmax()))
                self.excuse(reason)
            due = self._due[move.at]
            due.update(dict.fromkeys(due.keys() & tags.tolist(), reason))

    def _there(self, book: Book, move: Move) -> NDArray[np.bool_]:
        """For each page of a copy to host, whether host has it, also from elsewhere."""
        tags = book.pool(Tier.DEVICE, move.at).content[move.source].tolist()
        there = book.nodes.resident[book.width + move.at]
        return np.array([tag in there for tag in tags], dtype=bool)

    def _not_published(self, book: Book, ticket: Ticket, move: Move, at: int) -> Reason:
        """Why a page that was copied is not a node's on host."""
        source = book.pool(Tier.DEVICE, move.at)
        mirror = book.nodes.by_id.get(int(source.owner[move.source[at]]) >> 2)
        if int(source.owner[move.source[at]]) & 3 != NODE or mirror is None:
            return Reason.FLUSHED
        width = book.width
        if book.writes.contiguous:
            above = mirror.parent if not move.at else mirror
            if above is None or (above.parent is not None and above.pages[width] is None):
                return Reason.NOT_CONTIGUOUS
        below = mirror.node.children if mirror.node is not None else {}
        children = (book.nodes.by_id.get(one.id) for one in below.values())
        held = any(one and (locked_beside(book, one) or one.id in ticket.nodes) for one in children)
        if move.at or not (held or locked_beside(book, mirror)):
            self.fail(
                f"flight {ticket.id}: the copy of node {mirror.id}'s {source.name} arrived; "
                "expected it on host, found it dropped",
                flight(ticket.id),
                node(mirror.id),
            )
        return Reason.LOCKED_BESIDE

    def _gone(self, book: Book, item: Evicted) -> None:
        pages = book_of(book, item)
        due = self._due[pages.component]
        if item.tier == Tier.HOST and due:
            gone = due.keys() & pages.content[item.pages].tolist()
            due.update(dict.fromkeys(gone, Reason.EVICTED_FROM_HOST))
        first, self._operation = self._operation != book.operations, book.operations
        on_device = item.tier == Tier.DEVICE and len(item.pages) and book.writes.on_evict
        if type(book.event) is TimePassed:
            return  # what expires is not kept anywhere
        if not on_device or not all(one.capacity for one in book.pages[book.width :]):
            return  # a boundary cannot be live on host
        if pages.served[item.pages[0]] and not demoted(book, item):
            judged = first or book.width == 1  # the first victim may turn later ones into garbage
            self.excuse(self._excused(book, item) if judged else Reason.LATER)

    def _excused(self, book: Book, item: Evicted) -> Reason:
        """Why a victim may leave the device without a copy on host."""
        pages = book_of(book, item)
        number = int(item.pages[0])
        giver = int(pages.giver[number])
        mirror = known(book, giver)
        tags = mirror.tags.tolist() if mirror is not None else []
        if not self._refused.isdisjoint([*tags, int(pages.content[number])]):
            return Reason.FAILED
        reason = decided_by(book, item).reason
        if reason is not None:
            return reason
        needed, room = _needed(book, item), _room(book, item, giver)
        if all(have >= count for have, count in zip(room, needed, strict=True)):
            self.fail(
                f"{pages.where} page {number}, which served a live boundary, went and is not on "
                f"host; its node needed {needed} pages there, and could have had {room}",
                page(pages, number),
            )
        return Reason.NO_ROOM

    def still(self, book: Book, view: CoreView) -> None:
        if not book.writes.threshold or book.config.exchange_pages:
            return  # an exclusive host gives up what was loaded
        for mirror in book.nodes.by_id.values():
            for index in missing(book, mirror):
                due, last = self._due[index], int(mirror.tags[-1])
                if last not in due:
                    continue  # nothing made it due
                reason = due[last]
                if reason is None:
                    self.fail(
                        f"node {mirror.id}: a use began to copy its {book.kinds[index].name} to "
                        "host; expected it there, found it on device only",
                        node(mirror.id),
                    )
                self.excuse(reason)


def _needed(book: Book, item: Evicted) -> list[int]:
    """Returns, per component, the host pages needed for what the victim's node lost in this
    operation.
    """
    giver = int(book_of(book, item).giver[item.pages[0]])
    needed = [0] * book.width
    for other in book.outcomes:
        if type(other) is Evicted and other.tier == Tier.DEVICE and not demoted(book, other):
            pages = book_of(book, other)
            needed[pages.component] += int((pages.giver[other.pages] == giver).sum())
    return needed


def _room(book: Book, item: Evicted, giver: int) -> list[int]:
    """Returns, per component, the host pages that a backup of the node could have used: free or
    unlocked, except the copies of its own path, which the backup locks, those of the path that a
    request to be admitted would reuse, and what write-backs before it took and locked.
    """
    room = [
        book.free_before[slot] + book.evictable_before[slot] if book.pages[slot].capacity else 0
        for slot in range(book.width, 2 * book.width)
    ]
    room = [have - kept_free(book, index) for index, have in enumerate(room)]
    before = book.outcomes[: next(at for at, one in enumerate(book.outcomes) if one is item)]
    begun = [book.tickets.open[one.flight] for one in before if type(one) is Backup]
    for other in book.outcomes:  # copies on the path that were evicted
        if type(other) is Evicted and other.tier == Tier.HOST:
            room[book_of(book, other).component] -= len(other.pages)
    for ticket in begun:
        for move in ticket.moves:
            room[move.at] -= len(move.target)
    locked = {number: book.nodes.by_id.get(number) for one in begun for number in one.nodes}
    step = known(book, giver)
    while step is not None:
        locked[step.id] = step
        step = _above(book, step)
    for mirror in locked.values():
        held = mirror.pages[book.width] if mirror is not None else None
        room[0] -= 0 if held is None else len(held)
    if type(book.event) is AdmitWanted:
        req = book.requests.by_id.get(book.event.request)
        deepest = max(depths(book, req))
        for tag in req.known[:deepest] if req is not None else ():
            mirror = book.nodes.at.get(tag)
            for index in range(book.width) if mirror is not None else ():
                held = mirror.pages[book.width + index]  # type: ignore[union-attr]
                room[index] -= 0 if held is None else len(held)
    return room


def _above(book: Book, mirror: NodeMirror) -> NodeMirror | None:
    """The node above. Of a removed node, that is the part of it which this operation kept, if the
    operation evicted only its last pages.
    """
    if mirror.id in book.nodes.by_id:
        return mirror.parent
    kept = (book.nodes.at.get(tag) for tag in mirror.tags[-2::-1].tolist())
    return next((one for one in kept if one is not None), mirror.parent)


def check() -> Durable:
    return Durable()
