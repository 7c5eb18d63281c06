"""Backups of windows and states that the write policy guarantees."""

from __future__ import annotations

from hicache.core.actions import Backup, Evicted, Load, Refused
from hicache.core.events import BackupDone
from hicache.core.radix.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.distances import is_live
from invariants.books.pages import NODE
from invariants.books.story import node, page
from invariants.checks._victims import book_of, kept_free, not_chosen


class Durable(Check):
    name = "DURABLE"
    sentence = (
        "Under a write policy with a threshold, at rest, every window or state of a boundary that "
        "was used often enough, and every page where one use is enough, is also on host, unless "
        "host lacked room or a backup failed; under one that backs up on eviction, no copy that "
        "serves a boundary leaves the device without a host copy."
    )
    watches = (Evicted, BackupDone)

    def __init__(self) -> None:
        super().__init__()
        self._operation = -1
        # prefixes with a backup that failed, or that ended before its parent's
        self._failed: set[int] = set()
        self._dropped: set[tuple[str, int]] = set()  # copies evicted from host
        self._longest = 0  # pages of the longest request's table
        self._excused = False  # an event occurred that excuses missing copies

    def see(self, book: Book, item: Evicted | BackupDone, view: CoreView) -> None:
        if type(item) is BackupDone:
            for move in book.answered.moves if book.answered is not None else ():
                host = book.pool(Tier.HOST, move.at)
                lost = (host.owner[move.target] & 3 != NODE) | (not item.ok)
                source = book.pool(Tier.DEVICE, move.at).content[move.source]
                self._failed.update(source[lost].tolist())
            return
        if type(item) is not Evicted:
            return
        if item.tier == Tier.HOST:
            tags = book_of(book, item).content[item.pages].tolist()
            self._dropped.update((item.component, tag) for tag in tags)
        first, self._operation = self._operation != book.operations, book.operations
        if book.writes.on_evict and first and len(item.pages):
            self._saved(book, item)

    def totals(self, book: Book, view: CoreView) -> None:
        """Sets `_excused` if host may have lacked room, or if the limit of concurrent backups was
        reached.
        """
        if self._excused or not book.history:
            return
        for number in view.touched_requests:
            req = book.requests.by_id.get(number)
            self._longest = max(self._longest, len(req.tables[0]) if req is not None else 0)
        backups = sum(type(one.action) is Backup for one in book.tickets.open.values())
        self._excused = backups >= book.config.max_backups or any(
            view.pool(pages.tier, pages.component).free < self._longest
            for pages in book.pages[book.width :]
            if pages.capacity
        )

    def _saved(self, book: Book, item: Evicted) -> None:
        """Checks the first victim of each operation; it may have turned later ones into garbage."""
        pages = book_of(book, item)
        index, number = pages.component, int(item.pages[0])
        serving = bool(pages.served[number])
        if item.tier != Tier.DEVICE or not index or item.demoted or not serving:
            return
        if not_chosen(book, pages, item) or int(pages.content[number]) in self._failed:
            return
        if any(type(other) in (Backup, Load, Refused) for other in book.outcomes):
            return  # a waiting backup or a load may have taken the room
        if not all(one.capacity for one in book.pages[book.width :]):
            return  # a boundary cannot be live on host
        needed, room = _needed(book, item), _room(book, int(pages.giver[number]))
        if all(have >= count for have, count in zip(room, needed, strict=True)):
            self.fail(
                f"{pages.where} page {number}, which served a live boundary, went and is not on "
                f"host; its node needed {needed} pages there, and could have had {room}",
                page(pages, number),
            )

    def still(self, book: Book, view: CoreView) -> None:
        least = book.writes.threshold
        if not least or self._excused or not all(one.capacity for one in book.pages):
            return
        for record in view.nodes():
            if least == 1:
                self._copied(book, record)
            used = _uses(book, record) >= least and record.pages[1][0] is not None
            if used and is_live(book.nodes.by_id[record.id], book.kinds):
                self._kept(book, record)

    def _copied(self, book: Book, record: Node) -> None:
        """Full attention pages of the node must also be on host."""
        here, there = (record.pages[tier][0] for tier in (0, 1))
        if here is None or there is not None:
            return
        name, tags = book.kinds[0].name, book.nodes.by_id[record.id].tags.tolist()
        if not any((name, tag) in self._dropped or tag in self._failed for tag in tags):
            self.fail(
                f"node {record.id}: expected {name} on host, found it on device only",
                node(record.id),
            )

    def _kept(self, book: Book, record: Node) -> None:
        """Device pages that the live boundary at the node's end requires must also be on host."""
        for kind in book.kinds[1:]:
            step = record
            while step.parent is not None and record.end_page - step.end_page < kind.need:
                here, there = (step.pages[tier][kind.at] for tier in (0, 1))
                tag = int(book.nodes.by_id[step.id].tags[-1])
                given_up = (kind.name, tag) in self._dropped or tag in self._failed
                if here is not None and there is None and not given_up:
                    self.fail(
                        f"boundary {record.end_page} at node {record.id}, {_uses(book, record)} "
                        f"uses: expected {kind.name} of node {step.id} on host, found it on device "
                        "only",
                        node(record.id),
                        node(step.id),
                    )
                step = step.parent


def _uses(book: Book, record: Node) -> int:
    return book.nodes.by_id[record.id].hits


def _needed(book: Book, item: Evicted) -> list[int]:
    """Returns, per component, the host pages needed for what the victim's node lost in this
    operation.
    """
    giver = int(book_of(book, item).giver[item.pages[0]])
    needed = [0] * book.width
    for other in book.outcomes:
        if type(other) is Evicted and other.tier == Tier.DEVICE and not other.demoted:
            pages = book_of(book, other)
            needed[pages.component] += int((pages.giver[other.pages] == giver).sum())
    return needed


def _room(book: Book, giver: int) -> list[int]:
    """Returns, per component, the host pages that a backup of the node could have used: free or
    unlocked, except the copies of its own path, which the backup locks.
    """
    room = [
        book.free_before[slot] + book.evictable_before[slot] if book.pages[slot].capacity else 0
        for slot in range(book.width, 2 * book.width)
    ]
    room = [have - kept_free(book, index) for index, have in enumerate(room)]
    for item in book.outcomes:  # copies on the path that were evicted
        if type(item) is Evicted and item.tier == Tier.HOST:
            room[book_of(book, item).component] -= len(item.pages)
    step = book.nodes.by_id.get(giver)
    step = step or next((one for one in book.nodes.gone if one.id == giver), None)
    while step is not None:
        held = step.pages[book.width]
        room[0] -= 0 if held is None else len(held)
        step = step.parent
    return room


def check() -> Durable:
    return Durable()
