"""The tables and the shared pages of requests, and what requests are told of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Fetch,
    Granted,
    Load,
    Lookup,
    Prefetched,
    Prefill,
    Store,
)
from hicache.core.errors import About
from hicache.core.events import Finished, Retracted
from hicache.core.node import Node
from hicache.core.types import NO_PAGES, Pages, Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.kinds import Kind
from invariants.books.mirror import NodeMirror
from invariants.books.pages import FLIGHT, KINDS, PageBook, name_of, same
from invariants.books.requests import RequestMirror


class Anchor(Check):
    name = "ANCHOR"
    sentence = (
        "The pages that a request shares are exactly those of the nodes on the path to its "
        "anchor, in order, and that path is its own prefix."
    )
    watches = (Admitted, Cached, Finished, Retracted)

    def see(
        self, book: Book, item: Admitted | Cached | Finished | Retracted, view: CoreView
    ) -> None:
        if book.missing:
            self.fail(
                f"expected a node, found none: {book.missing[0]}", story.request(item.request)
            )
        if type(item) is Finished or type(item) is Retracted:
            return
        req, record = book.requests.by_id.get(item.request), view.requests.get(item.request)
        if req is None or record is None:
            self.fail(
                f"request {item.request} is answered but unknown", story.request(item.request)
            )
        depth = _depth_of(item)  # type: ignore[arg-type]
        shared = req.shared_pages
        if record.shared_pages != req.boundary:
            self.fail(
                f"request {item.request}: expected {req.boundary} shared pages on record, found "
                f"{record.shared_pages}",
                story.request(item.request),
            )
        if len(shared) < depth or (type(item) is Admitted and len(shared) != depth):
            self.fail(
                f"request {item.request}: expected {depth} shared pages, found {len(shared)}",
                story.request(item.request),
            )
        end = len(shared)
        step = book.nodes.at.get(int(req.tags[end - 1])) if end else None
        while step is not None and step.parent is not None:
            start = step.end_page - step.span
            if not _same(step, shared[start:end]):
                self.fail(
                    f"request {item.request}: pages {start}..{end} of its table are not those of "
                    f"node {step.id}",
                    story.request(item.request),
                )
            for kind in book.kinds[1:]:
                if kind.positional:
                    self._window(req, step, kind)
            end, step = start, step.parent
        if end:
            self.fail(
                f"request {item.request}: no node ends at page {end} of its prefix",
                story.request(item.request),
            )

    def _window(self, req: RequestMirror, step: NodeMirror, kind: Kind) -> None:
        """Checks the window pages in the table against the node's, where the boundary requires
        them.
        """
        held = step.pages[kind.at]
        mine = req.tables[kind.at][step.end_page - step.span : step.end_page]
        if held is None or same(mine, held):
            return  # a load fills these positions, or they are not read
        required = np.arange(step.end_page - step.span, step.end_page) >= req.low - kind.need
        required &= req.boundary - kind.need < step.end_page <= req.boundary
        wrong = (mine != held) & ((mine >= 0) | required)
        if wrong.any():
            at = int(wrong.argmax())
            self.fail(
                f"request {req.id}, boundary {req.boundary}: {kind.name} page "
                f"{step.end_page - step.span + at} of its table is {mine[at]}, expected node "
                f"{step.id}'s {held[at]}",
                story.request(req.id),
                story.node(step.id),
            )


def _depth_of(item: Admitted | Cached) -> int:
    """Number of leading backbone pages that the request shares now."""
    if type(item) is Cached:
        return item.pages
    loads = item.loaded_pages[0] if item.loaded_pages else item.host_pages  # type: ignore[union-attr]
    return item.device_pages + item.host_pages - loads  # type: ignore[union-attr]


def _same(mirror: NodeMirror, pages: Pages) -> bool:
    held = mirror.pages[0]
    return held is not None and held.tobytes() == pages.tobytes()


_WithPages: TypeAlias = Load | Backup | Prefill | Granted | Cached | Fetch | Store


class Alias(Check):
    name = "ALIAS"
    sentence = (
        "No page array of a node, a request or an action can be written through any name, and a "
        "table does not change after it was handed out."
    )
    watches = (Load, Backup, Prefill, Granted, Cached, Fetch, Store)
    of_changes = True

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.changed:
            for claimed, code in pages.claimed:
                if code & 3 != FLIGHT and _writable(claimed):
                    self.fail(
                        f"pages of {name_of(code)}: expected read-only, found writable",
                        About(KINDS[code & 3], code >> 2),
                    )

    def see(self, book: Book, item: _WithPages, view: CoreView) -> None:
        arrays = None
        if type(item) is Load or type(item) is Backup:
            arrays = [pages for copy in item.copies for pages in (copy.source, copy.target)]
        elif type(item) is Fetch or type(item) is Store:
            arrays = [piece.pages for piece in item.pieces]
        if arrays is not None:
            if any(map(_writable, arrays)):
                number: int = item.flight  # type: ignore[union-attr]
                self.fail(f"flight {number}: its pages are writable", story.flight(number))
            return
        tables = item.tables  # type: ignore[union-attr]
        if any(map(_writable, tables)):
            number = item.request  # type: ignore[union-attr]
            self.fail(f"a table of request {number} is writable", story.request(number))
        req = book.requests.by_id.get(item.request)  # type: ignore[union-attr]
        if req is not None and (not req.handed or req.handed[0][0] is not tables[0]):
            self._unchanged(req)
            req.handed = tuple((table, table.tobytes()) for table in tables)

    def audit(self, book: Book, view: CoreView) -> None:
        for req in book.requests.by_id.values():
            self._unchanged(req)

    def _unchanged(self, req: RequestMirror) -> None:
        for table, copy in req.handed:
            if table.tobytes() != copy:
                self.fail(
                    f"the table handed to request {req.id} changed after it was handed out",
                    story.request(req.id),
                )


def _writable(pages: Pages) -> bool:
    base = pages.base
    return pages.flags.writeable or (base is not None and base.flags.writeable)


class MetricReference(Check):
    name = "METRIC-REF"
    sentence = (
        "The hits of all tiers and the computed tokens sum to the prompt, hits stay within what "
        "may be reused, and the prefills compute exactly the rest, in order; a prefetch asks for "
        "no page that may not be reused, finds no more than it asked for and fetches no more than "
        "it found."
    )
    watches = (Admitted, Prefill, Prefetched, Lookup)

    def __init__(self) -> None:
        self._next: dict[int, int] = {}  # by request, the first token of its next prefill

    def see(
        self, book: Book, item: Admitted | Prefill | Prefetched | Lookup, view: CoreView
    ) -> None:
        req = book.requests.by_id.get(item.request)
        if req is None or not isinstance(item, Prefetched | Lookup):
            return
        first, most = item.first_page, len(req.known)
        if isinstance(item, Prefetched):
            asked = item.asked_pages
            wrong = not 0 <= item.fetched_pages <= item.found_pages <= asked
        else:
            asked = len(item.digests)
            wrong = first + asked > most
        if wrong:
            self.fail(
                f"request {req.id}, {most} pages that may be reused: {story.brief(item)}",
                story.request(req.id),
            )

    def issue(
        self, book: Book, item: Admitted | Prefill | Prefetched | Lookup, view: CoreView
    ) -> None:
        req = book.requests.by_id.get(item.request)
        if req is None or isinstance(item, Prefetched | Lookup):
            return
        if isinstance(item, Admitted):
            hits = item.device_pages + item.host_pages
            reused = min(req.length, hits * book.page_size)
            self._next[item.request] = reused
            if reused + item.tokens_to_compute != req.length or hits > req.match_pages:
                self.fail(
                    f"request {item.request}: device {item.device_pages} + host {item.host_pages} "
                    f"pages of {book.page_size} + computed {item.tokens_to_compute}, expected a "
                    f"sum of {req.length} and at most {req.match_pages} pages",
                    story.request(item.request),
                )
            if any(depth > req.match_pages for depth in (*item.depths, item.matched_pages)):
                self.fail(
                    f"request {item.request}: {item.matched_pages} pages known, components valid "
                    f"up to {item.depths}; expected at most {req.match_pages}",
                    story.request(item.request),
                )
            return
        start = max(self._next.get(item.request, 0), req.computed_tokens)
        for earlier in book.passes_before(item):
            start = max(start, earlier.action.end_token)  # type: ignore[union-attr]
        first, end, whole = item.start_token, item.end_token, item.completes_prompt
        last = end == req.length
        if first != start or not start <= end <= req.length or whole != last:
            self.fail(
                f"request {item.request}: prefill {first}..{end}, last {whole}; expected "
                f"to start at {start} and end by {req.length}",
                story.request(item.request),
            )
        if last:
            self._next.pop(item.request, None)


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
        if not mirror.moved and not book.clashed:
            return  # what was the node's own still is
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
                story.pool(one),
                story.pool(other),
            )
        owners, others = one.owner[full], other.owner[peers]
        if not same(owners, others):
            at = int((owners != others).argmax())
            self.fail(
                f"{one.where} page {full[at]} is {name_of(int(one.owner[full[at]]))}'s, its peer "
                f"{other.where} page {peers[at]} {name_of(int(other.owner[peers[at]]))}'s",
                story.page(one, int(full[at])),
                story.page(other, int(peers[at])),
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
                story.page(full, at),
            )
        there = np.sort(expected[expected > 0])
        twice = there[1:][there[1:] == there[:-1]]
        if len(twice):
            self.fail(
                f"{other.where} page {twice[0] - 1} is the peer of two {full.where} pages",
                story.page(other, int(twice[0]) - 1),
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


CHECKS = (Anchor, Alias, MetricReference, PeerMap)
