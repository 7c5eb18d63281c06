"""Backups start when the write policy requires them, and at no other time."""

from __future__ import annotations

from hicache.core.actions import Backup, Cached, Released
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import flight, node
from invariants.checks._backups import missing, path_of, put_off
from invariants.checks._victims import kept_free
from invariants.reasons import Reason


class BackupDue(Check):
    name = "BACKUP-DUE"
    sentence = (
        "A use of a path begins backups of its leading nodes that were used as often as the write "
        "policy's threshold says, while host has room and within the limit of concurrent backups, "
        "and no others; an eviction waits for a backup only under a policy that backs up on "
        "eviction."
    )
    watches = (Backup, Cached, Released)

    def see(self, book: Book, item: Backup | Cached | Released, view: CoreView) -> None:
        least = book.writes.threshold
        if type(item) is Backup:
            self._begun(book, item, least)
        elif least and book.config.has_host:
            self._put_off(book, path_of(book, item), least)  # type: ignore[arg-type]

    def _begun(self, book: Book, item: Backup, least: int) -> None:
        ticket = book.tickets.open[item.flight]
        if ticket.evicts:
            return  # an eviction waits for it
        if not least:
            self.fail(
                f"flight {item.flight}: a copy to host that no eviction waits for",
                flight(item.flight),
            )
        under_way = sum(type(one.action) is Backup for one in book.tickets.open.values())
        if under_way > book.config.max_backups:
            self.fail(
                f"flight {item.flight}: {under_way} copies to host are under way, expected at most "
                f"{book.config.max_backups}",
                flight(item.flight),
            )
        for move in ticket.moves:
            pages = book.pool(Tier.DEVICE, move.at)
            for number in dict.fromkeys((pages.owner[move.source] >> 2).tolist()):
                mirror = book.nodes.by_id.get(number)
                hits = _hits(mirror)
                if hits < least:
                    self.fail(
                        f"flight {item.flight} copies node {number}, used {hits} times; expected "
                        f"at least {least}",
                        node(number),
                    )

    def _put_off(self, book: Book, path: list[NodeMirror], least: int) -> None:
        """Checks that the first node that is due, and not under way to host, has a reason."""
        under_way = put_off(book)
        if book.wants.pins and book.nodes.came:
            return  # pins may have cut the nodes after what was due had been decided
        for mirror in path:
            late = [at for at in missing(book, mirror) if (at, mirror.id) not in under_way.copied]
            if not late:
                continue
            if _hits(mirror) < least:
                return
            spare = _spare(book, mirror, path, late)
            if mirror.id in book.nodes.turned and min(_spare(book, mirror, path, _all(mirror))) < 0:
                self.excuse(Reason.SANK)
                return
            if under_way.reason:
                self.excuse(under_way.reason)
            elif min(spare) < 0:
                self.excuse(Reason.NO_ROOM)
            else:
                self.fail(
                    f"node {mirror.id}, used {_hits(mirror)} times: expected its components "
                    f"{late} to be under way to host, which has room for {spare} more pages",
                    node(mirror.id),
                )
            return


def _hits(mirror: NodeMirror | None) -> int:
    return mirror.hits if mirror is not None else 0


def _all(mirror: NodeMirror) -> list[int]:
    """The components that the node has on device alone, garbage or not."""
    width = len(mirror.pages) // 2
    device, host = mirror.pages[:width], mirror.pages[width:]
    return [at for at in range(width) if device[at] is not None and host[at] is None]


def _spare(book: Book, mirror: NodeMirror, path: list[NodeMirror], late: list[int]) -> list[int]:
    """Returns, per component, the host pages that would be left after a copy of the node. The
    backup would lock the host copies of its path.
    """
    hosts = book.pages[book.width :]
    room = [
        one.available - kept_free(book, at) if one.capacity else 0 for at, one in enumerate(hosts)
    ]
    for step in path:
        held = step.pages[book.width]
        room[0] -= len(held) if held is not None and not step.locked[book.width] else 0
    for at in late:
        pages = mirror.pages[at]
        room[at] -= 0 if pages is None else len(pages)
    return room


def check() -> BackupDue:
    return BackupDue()
