"""The map from pages of full attention to pages of windowed components."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hicache.core.actions import Cached, Granted, Prefill
from hicache.core.radix.node import Node
from hicache.core.types import NO_PAGES, Pages, Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.mirror import NodeMirror
from invariants.books.pages import PageBook, name_of, same
from invariants.books.requests import RequestMirror
from invariants.books.story import page, pool


class PeerMap(Check):
    name = "MAP-SWA"
    sentence = (
        "The map from pages of full attention to pages of a windowed component is zero where "
        "there is no peer and injective elsewhere, and a page and its peer have one owner."
    )
    of_several = True
    watches = (Prefill, Cached, Granted)

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        held, books = mirror.pages, book.pages
        for first in (0, book.width):
            full = held[first]
            for kind in book.kinds[1:]:
                peers = held[first + kind.at]
                if kind.positional and full is not None and peers is not None:
                    self._one_owner(books[first], full, books[first + kind.at], peers)

    def see(self, book: Book, item: Prefill | Cached | Granted, view: CoreView) -> None:
        req = book.requests.by_id.get(item.request)
        record = view.requests.get(item.request)
        if req is None or record is None:
            return
        for kind in book.kinds[1:]:
            if kind.positional:
                full, peers = _own(book, req, kind)
                self._one_owner(book.device, full, book.pages[kind.at], peers)

    def _one_owner(self, one: PageBook, full: Pages, other: PageBook, peers: Pages) -> None:
        if len(full) != len(peers):
            self.fail(
                f"{len(full)} {one.where} pages have {len(peers)} {other.where} peers",
                pool(one),
                pool(other),
            )
        owners, others = one.owner[full], other.owner[peers]
        if not same(owners, others):
            at = int((owners != others).argmax())
            self.fail(
                f"{one.where} page {full[at]} is {name_of(int(one.owner[full[at]]))}'s, its peer "
                f"{other.where} page {peers[at]} {name_of(int(other.owner[peers[at]]))}'s",
                page(one, int(full[at])),
                page(other, int(peers[at])),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        for tier in (Tier.DEVICE, Tier.HOST):
            for kind in book.kinds[1:]:
                if kind.positional:
                    self._agree(book, view, tier, kind)

    def _agree(self, book: Book, view: CoreView, tier: Tier, kind: Kind) -> None:
        full, other = book.pool(tier), book.pool(tier, kind.at)
        expected = np.zeros(full.capacity, dtype=np.int64)
        pairs = list(_pairs(book, tier, kind))
        pages = np.concatenate([NO_PAGES, *(one for one, _ in pairs)])
        expected[pages] = np.concatenate([NO_PAGES, *(peers for _, peers in pairs)]) + 1
        found = view.peers(tier, kind.at)
        if not np.array_equal(found, expected):
            at = int((found != expected).argmax())
            self.fail(
                f"{full.where} page {at}: expected the {other.where} peer {expected[at] - 1}, "
                f"found {found[at] - 1} (-1: none)",
                page(full, at),
            )
        there = np.sort(expected[expected > 0])
        twice = there[1:][there[1:] == there[:-1]]
        if len(twice):
            self.fail(
                f"{other.where} page {twice[0] - 1} is the peer of two {full.where} pages",
                page(other, int(twice[0]) - 1),
            )


def _pairs(book: Book, tier: Tier, kind: Kind) -> Iterator[tuple[Pages, Pages]]:
    """Yields the full attention pages and their peers of each node, and on device of each
    request.
    """
    first = tier * book.width
    for mirror in book.nodes.by_id.values():
        one, peers = mirror.pages[first], mirror.pages[first + kind.at]
        if one is not None and peers is not None and len(one) == len(peers):
            yield one, peers
    if tier == Tier.DEVICE:
        for req in book.requests.by_id.values():
            yield _own(book, req, kind)


def _own(book: Book, req: RequestMirror, kind: Kind) -> tuple[Pages, Pages]:
    """Returns the request's own full attention pages that have a peer, and the peers."""
    own = req.own[0]
    if not len(own):
        return NO_PAGES, NO_PAGES
    peers = req.tables[kind.at][len(req.tables[0]) - len(own) :]
    there = peers >= 0
    return own[there], peers[there]


def check() -> PeerMap:
    return PeerMap()
