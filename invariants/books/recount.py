"""Builds the books again from the view alone, and compares them with the incremental books.

Lives here: a second, simpler way to compute the same sums. A difference is an error in the books,
or in the core's list of touched objects.

Tags depend only on keys. A recount keeps the tags of nodes with the same key object and parent, and
recomputes one sixteenth of them, a different sixteenth each time. Computing all of them would take
longer than everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.core.errors import About
from hicache.core.node import FlightKind, Node, Receipt
from hicache.core.types import NO_PAGES, Tier
from hicache.core.view import CoreView

from . import story
from .book import Book
from .distances import recounted
from .mirror import NodeMirror, candidacy
from .nodes import NodeBook
from .pages import FLIGHT, NODE, REQUEST, PageBook, code_of, name_of
from .requests import own_of
from .tags import run_tags, seed_of

SAMPLE = 16
_TIERS = {FlightKind.LOAD: (Tier.HOST, Tier.DEVICE), FlightKind.BACKUP: (Tier.DEVICE, Tier.HOST)}


class Mismatch(Exception):
    """The incremental and the recounted books differ."""

    def __init__(self, equation: str, *about: About) -> None:
        super().__init__(equation)
        self.equation = equation
        self.about = about


def recount(view: CoreView, kept: Book, history: bool) -> Book:
    """Returns the books of the present state. history: whether `kept` saw every operation; if not,
    pins and uses are taken from the view.
    """
    book = Book(view)
    book.history = False
    book.operations, book.outcomes, book.event = kept.operations, kept.outcomes, kept.event
    book.nodes.stride = kept.nodes.stride
    for node in (view.root, *view.nodes()):
        _node(book.nodes, node, kept.nodes, history)
    for slot, owned in enumerate(book.pages):
        owned.claim_all(
            [
                (pages, code_of(NODE, mirror.id))
                for mirror in book.nodes.by_id.values()
                if (pages := mirror.pages[slot]) is not None
            ]
        )
    _requests(book, view, kept, history)
    if history:
        _open_tickets(book, kept)
        for pin in kept.wants.pins.values():
            for slot, pages in pin.locked:
                book.pages[slot].locks[pages] += 1
    else:
        _flights(book, view)
        for pinned in view.pins.values():
            _locked(book, pinned.receipt)
    for mirror in book.nodes.by_id.values():
        for slot, pages in enumerate(mirror.pages):
            if pages is not None and len(pages):
                count = mirror.locked[slot] = int(book.pages[slot].locks[pages[0]])
                book.pages[slot].protected += len(pages) if count else 0
    for owned in book.pages:
        owned.retiring.update(((owned.owner == 0) & (owned.busy > 0)).nonzero()[0].tolist())
        owned.count()
    recounted(list(book.nodes.by_id.values()), book.kinds, book.nodes.widest)
    for mirror in book.nodes.by_id.values():
        mirror.candidate = candidacy(mirror, book.kinds)
    book.changed = book.pages
    book.requests.admitted = sum(request.admitted for request in view.requests.values())
    return book


def _node(nodes: NodeBook, node: Node, kept: NodeBook, history: bool) -> None:
    before = kept.by_id.get(node.id)
    mirror = nodes.root if node.parent is None else NodeMirror(node.id, nodes.width)
    mirror.node, mirror.key, mirror.label, mirror.end_page = (
        node,
        node.key,
        node.label,
        node.end_page,
    )
    nodes.by_id[node.id] = mirror
    parent = nodes.by_id.get(node.parent.id) if node.parent is not None else None
    mirror.use = before.use if before is not None and history else node.last_use[0]
    if parent is None:
        return
    mirror.parent = parent
    mirror.span = len(node.key) // nodes.stride
    parent.kids += 1
    if parent is nodes.root:
        mirror.namespace = node.label[: -nodes.stride].rstrip(b"\0").decode()
        above = seed_of(mirror.namespace)
    else:
        mirror.namespace = parent.namespace
        above = parent.tags[-1] if len(parent.tags) else seed_of(parent.namespace)
    same = before is not None and before.key is node.key and before.parent is not None
    if before is not None and same and (node.id + kept.recounts) % SAMPLE:
        mirror.tags = before.tags
    elif history:
        mirror.tags = run_tags(node.key, nodes.stride, parent.end_page, above)
    on_device, on_host = node.pages
    mirror.pages = [*on_device, *on_host]
    parent.kids_on[0] += on_device[0] is not None
    parent.kids_on[1] += on_host[0] is not None


def _requests(book: Book, view: CoreView, kept: Book, history: bool) -> None:
    """Files the pages that requests own and, if the history is known, those that they lock."""
    for request in view.requests.values():
        req, code = kept.requests.by_id.get(request.id), code_of(REQUEST, request.id)
        if not (req.admitted if history and req is not None else request.admitted):
            continue
        shared = req.boundary if history and req is not None else request.shared_pages
        for kind in book.kinds:
            book.pool(0, kind.at).claim(own_of(request.tables[kind.at], kind, shared), code)
        if not history:
            _locked(book, request.receipt)
        elif req is not None:
            book.device.locks[req.shared_pages] += 1
            settled = not req.load and not req.low
            for index, before in enumerate(req.held, 1):
                held = kept.requests.required(req, index) if settled else before
                for pages in held:
                    book.pool(0, index).locks[pages] += 1


def _locked(book: Book, receipt: Receipt | None) -> None:
    for index, entries in enumerate(receipt.locked if receipt is not None else ()):
        for node, tier in entries:
            pages = node.pages[tier][index]
            book.pool(tier, index).locks[NO_PAGES if pages is None else pages] += 1


def _open_tickets(book: Book, kept: Book) -> None:
    for ticket in kept.tickets.open.values():
        for slot, pages in ticket.pins:
            book.pages[slot].locks[pages] += 1
        for index, locked in enumerate(ticket.locked):
            for pages in locked:
                book.pages[index].locks[pages] += 1
        for use in ticket.uses:
            book.pages[use.at].busy[use.busy] += 1
        for move in ticket.moves if not ticket.landed else ():
            one, other = (book.pages[slot] for slot in kept.tickets.slots(ticket, move.at))
            one.busy[move.source] += 1
            other.busy[move.target] += 1
            other.claim(move.target, code_of(FLIGHT, ticket.id))


def _flights(book: Book, view: CoreView) -> None:
    for flight in view.flights.values():
        _locked(book, flight.receipt)
        for index, lent in enumerate(flight.lent):
            book.pool(0, index).busy[lent] += 1
        source, target = _TIERS.get(flight.kind, (Tier.HOST, Tier.HOST))
        for leg in flight.legs:
            book.pool(source, leg.component).busy[leg.source] += 1
            book.pool(target, leg.component).busy[leg.target] += 1
            book.pool(target, leg.component).claim(leg.target, code_of(FLIGHT, flight.id))


def compare(kept: Book, counted: Book) -> None:
    """Raises Mismatch for the first difference."""
    kept.nodes.recounts += 1
    for one, other in zip(kept.pages, counted.pages, strict=True):
        _compare_pages(one, other)
    if kept.nodes.by_id.keys() != counted.nodes.by_id.keys():
        odd = sorted(kept.nodes.by_id.keys() ^ counted.nodes.by_id.keys())
        raise Mismatch(
            f"nodes kept {len(kept.nodes.by_id)}, recounted {len(counted.nodes.by_id)}; "
            f"first difference {odd[0]}",
            story.node(odd[0]),
        )
    for mirror in counted.nodes.by_id.values():
        _compare_node(kept.nodes.by_id[mirror.id], mirror)
    nodes = len(counted.nodes.by_id) - 1
    for name, places in (("first", kept.nodes.first), ("last", kept.nodes.at)):
        if len(places) != nodes:
            raise Mismatch(f"{name} pages of nodes: kept {len(places)}, recounted {nodes}")


def _compare_pages(one: PageBook, other: PageBook) -> None:
    for name in ("owner", "locks", "busy"):
        kept, found = getattr(one, name), getattr(other, name)
        if not np.array_equal(kept, found):
            page = int((kept != found).argmax())
            shown = [name_of(int(x[page])) if name == "owner" else x[page] for x in (kept, found)]
            raise Mismatch(
                f"{one.where} page {page}, {name}: kept {shown[0]}, recounted {shown[1]}",
                story.page(one, page),
            )
    sums = [(book.held, book.protected, book.retiring) for book in (one, other)]
    if sums[0] != sums[1]:
        raise Mismatch(
            f"{one.where} pages held by (-, nodes, requests, flights), protected and retiring: "
            f"kept {sums[0]}, recounted {sums[1]}",
            story.pool(one),
        )


_FIELDS = ("end_page", "kids", "kids_on", "locked", "candidate", "namespace", "live_distance")


def _compare_node(one: NodeMirror, other: NodeMirror) -> None:
    kept: Any
    for name in _FIELDS:
        kept, found = getattr(one, name), getattr(other, name)
        if kept != found:
            raise Mismatch(
                f"node {one.id}, {name}: kept {kept}, recounted {found}", story.node(one.id)
            )
    same_parent = (one.parent and one.parent.id) == (other.parent and other.parent.id)
    same_pages = all(
        a is b or (a is not None and b is not None and np.array_equal(a, b))
        for a, b in zip(one.pages, other.pages, strict=True)
    )
    same_tags = one.tags is other.tags or np.array_equal(one.tags, other.tags)
    if not (same_parent and same_pages and same_tags):
        raise Mismatch(
            f"node {one.id}: kept and recounted agree on parent {same_parent}, "
            f"pages {same_pages}, tags {same_tags}",
            story.node(one.id),
        )
