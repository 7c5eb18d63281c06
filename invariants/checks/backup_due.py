"""Backups start when the write policy requires them, and at no other time."""

from __future__ import annotations

from hicache.core.actions import Backup, Cached, Evicted, Released
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror, serves
from invariants.books.story import flight, node
from invariants.books.tags import Tags
from invariants.checks._victims import kept_free


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
            self._begun(book, item, view, least)
        elif least and book.config.has_host:
            path = self._path(book, item)  # type: ignore[arg-type]
            self._put_off(book, path, view, least)

    def _begun(self, book: Book, item: Backup, view: CoreView, least: int) -> None:
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

    def _path(self, book: Book, item: Cached | Released) -> list[NodeMirror]:
        """The nodes that the operation used, from the root down."""
        tags: Tags
        if type(item) is Cached:
            req = book.requests.by_id.get(item.request)
            pages, tags = item.pages, req.tags if req is not None else book.nodes.root.tags
        elif book.left is not None:
            _, tags, made = book.left
            pages = made[0]
        else:
            return []
        deepest = book.nodes.at.get(int(tags[pages - 1])) if 0 < pages <= len(tags) else None
        return list(book.nodes.path(deepest.id))[::-1] if deepest is not None else []

    def _put_off(self, book: Book, path: list[NodeMirror], view: CoreView, least: int) -> None:
        backups = [one for one in book.tickets.open.values() if type(one.action) is Backup]
        if len(backups) >= book.config.max_backups:
            return
        under_way = {
            (move.at, code >> 2)
            for ticket in backups
            for move in ticket.moves
            for code in book.pool(Tier.DEVICE, move.at).owner[move.source].tolist()
        }
        if any(type(one) is Evicted for one in book.outcomes):
            return  # a host page may have become free only after the core had looked
        for mirror in path:
            missing = [
                kind.at
                for kind in book.kinds
                if mirror.pages[kind.at] is not None
                and mirror.pages[book.width + kind.at] is None
                and book.pages[book.width + kind.at].capacity
                and (not kind.at or serves(kind, mirror.live_distance))
                and (kind.at, mirror.id) not in under_way
            ]
            if not missing:
                continue
            if _hits(mirror) < least:
                return
            if all(_has_room(book, mirror, at, view) for at in missing):
                self.fail(
                    f"node {mirror.id}, used {_hits(mirror)} times: expected its components "
                    f"{missing} to be under way to host, which has room",
                    node(mirror.id),
                )
            return


def _hits(mirror: NodeMirror | None) -> int:
    return mirror.hits if mirror is not None else 0


def _has_room(book: Book, mirror: NodeMirror, at: int, view: CoreView) -> bool:
    return view.pool(Tier.HOST, at).free - kept_free(book, at) >= _size(mirror, at)


def _size(mirror: NodeMirror, at: int) -> int:
    pages = mirror.pages[at]
    return 0 if pages is None else len(pages)


def check() -> BackupDue:
    return BackupDue()
