"""Shared code of the checks of backups: what a use makes due, and what may put it off."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from hicache.core.actions import Backup, Cached, Evicted, Released
from hicache.core.types import Tier
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror, serves
from invariants.books.tags import Tags
from invariants.reasons import Reason


class PutOff(NamedTuple):
    """copied: by component and node, what open backups copy. reason: why a use begins none now, if
    something keeps it from that.
    """

    copied: Set[tuple[int, int]]
    reason: Reason | None


def path_of(book: Book, item: Cached | Released) -> list[NodeMirror]:
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


def missing(book: Book, mirror: NodeMirror) -> list[int]:
    """Components of a node that are to be copied when its use makes them due: on device, not on
    host, with a host pool, and required by a live boundary. Room for a copy of a node may be made
    by evicting copies of the nodes above it, so what left host in this operation is not counted.
    """
    found = [
        kind.at
        for kind in book.kinds
        if mirror.pages[kind.at] is not None
        and mirror.pages[book.width + kind.at] is None
        and book.pages[book.width + kind.at].capacity
        and (not kind.at or serves(kind, mirror.live_distance))
    ]
    lost = _lost_on_host(book, mirror) if found else set()
    return [index for index in found if index not in lost]


def _lost_on_host(book: Book, mirror: NodeMirror) -> set[int]:
    """Components of a node whose host copies were evicted in this operation."""
    found = set()
    for item in book.outcomes:
        if type(item) is Evicted and item.tier == Tier.HOST:
            index = book.index_of(item.component)
            host = book.pool(Tier.HOST, index)
            own = mirror.tags if host.positional else mirror.tags[-1:]
            if host.content[item.pages[0]] in own:
                found.add(index)
    return found


def transfers(book: Book, kind: type = object) -> set[tuple[int, int]]:
    """What open transfers of this kind copy and have not delivered, by component and node."""
    return {
        (move.at, code >> 2)
        for ticket in book.tickets.open.values()
        if not ticket.landed and isinstance(ticket.action, kind)
        for move in ticket.moves
        for code in book.pool(ticket.tiers[0], move.at).owner[move.source].tolist()
    }


def put_off(book: Book) -> PutOff:
    """What keeps this operation's use of a path from beginning backups."""
    before = sum(
        type(one.action) is Backup and (one.id <= book.tickets.settled or bool(one.evicts))
        for one in book.tickets.open.values()
    )
    too_many = before >= book.config.max_backups
    return PutOff(transfers(book, Backup), Reason.TOO_MANY if too_many else None)
