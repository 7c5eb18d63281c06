"""What is pinned: the pages of a transfer until its reply, and pinned prefixes.

Lives here: the pins of one ticket, taken when it is filed, and what pinned prefixes lock, as the
core notes it for each: what a pin may hold is for the specification to say.

    the backbone      of the path to the transfer's boundary, or to the deepest node that it reads,
                      on both tiers; on host alone if storage is the other side
    other components  the pages that it reads

A fetch pins the host copies on the path of its prompt, down to the last node that it shares a page
with: of the backbone, and of another component those that the boundary to be fetched requires.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Fetch, Load
from hicache.core.types import Pages, PinId
from hicache.core.view import CoreView

from .mirror import NodeMirror
from .nodes import NodeBook
from .pages import NODE, PageBook
from .requests import RequestBook
from .tags import Tags, tags_of
from .tickets import OF_STORAGE, Ticket, TicketBook


def pin(ticket: Ticket, tickets: TicketBook, nodes: NodeBook, reqs: RequestBook) -> str:
    """Pins the pages of a ticket. Returns "", or the error if it reads a page that no node owns."""
    deepest: NodeMirror | None = None
    stores = type(ticket.action) in OF_STORAGE
    for move in ticket.moves:
        slot, _ = tickets.slots(ticket, move.at)
        book = tickets.pages[slot]
        codes = book.owner[move.source].tolist()
        whose = dict.fromkeys(codes)
        for code in whose:
            if code & 3 != NODE:
                page = move.source.item(codes.index(code))
                return f"flight {ticket.id} reads page {page} of no node"
        for code in whose if move.at else codes[-1:]:
            mirror = nodes.by_id[code >> 2]
            nodes.dirty[mirror.id] = mirror
            if deepest is None or mirror.end_page > deepest.end_page:
                deepest = mirror
        if move.at:
            book.locks[move.source] += 1
            ticket.pins.append((slot, move.source))
    req = reqs.by_id.get(ticket.request)
    if type(ticket.action) is Fetch:
        _pin_prompt(ticket, tickets, nodes)
        return ""
    if req is not None and ticket.moves and req.boundary:  # a load pins the path to its boundary
        deepest = nodes.at.get(int(req.tags[req.boundary - 1]), deepest)
    path = nodes.path(deepest.id) if deepest is not None else []
    ticket.path += len(path)
    ticket.nodes += [mirror.id for mirror in path]
    for slot in (0, tickets.width) if not stores else (tickets.width,):
        there = {mirror.id: mirror for mirror in path if mirror.pages[slot] is not None}
        if there:
            all_pages = np.concatenate(
                [some for one in path if (some := one.pages[slot]) is not None]
            )
            tickets.pages[slot].locks[all_pages] += 1
            ticket.pins.append((slot, all_pages))
            nodes.dirty.update(there)
    return ""


def follow(tickets: TicketBook, nodes: NodeBook, answered: Ticket | None) -> None:
    """Updates what earlier fetches and stores pin, which is on host alone. What is deleted with the
    device copies above it leaves them. A node that comes to host above or beside what they pin is
    pinned too. answered: the ticket of this operation's reply; see `_hand_over`.
    """
    if answered is not None and type(answered.action) is Load:
        _hand_over(answered, tickets, nodes)
    stores = [one for one in tickets.open.values() if type(one.action) in OF_STORAGE and one.pins]
    ours = [ticket for ticket in stores if ticket not in tickets.fresh]
    if not ours:
        return
    host = tickets.pages[tickets.width]
    codes = {code >> 2 for _, code in host.claimed if code & 3 == NODE}
    came = sorted((nodes.by_id[one] for one in codes if one in nodes.by_id), key=_depth)
    for ticket in ours:
        if nodes.gone:
            _drop(ticket, tickets)
        pinned: set[tuple[int, int]] = {
            (slot, page) for slot, pages in ticket.pins for page in (pages.tolist() if came else ())
        }
        for mirror in reversed(came):
            below = mirror.node.children if mirror.node is not None else {}
            beside = [(tickets.width, nodes.by_id[one.id]) for one in below.values()]
            beside += [(tickets.width + at, mirror) for at in range(tickets.width)]
            held = any(
                pages is not None and (slot, int(pages[0])) in pinned
                for slot, pages in ((slot, one.pages[slot]) for slot, one in beside)
            )
            pages = mirror.pages[tickets.width]
            if held and pages is not None and (tickets.width, int(pages[0])) not in pinned:
                host.locks[pages] += 1
                ticket.pins.append((tickets.width, pages))
                pinned.update((tickets.width, page) for page in pages.tolist())
                nodes.dirty[mirror.id] = mirror


def _hand_over(load: Ticket, tickets: TicketBook, nodes: NodeBook) -> None:
    """A load has landed. If its request is gone, the pass of that request locks what nodes have of
    the pages that it still reads."""
    reader = tickets.reader(load)
    if reader is None:
        return
    for move in load.moves:
        book = tickets.pages[move.at]
        pages = move.target[book.owner[move.target] & 3 == NODE]
        book.locks[pages] += 1
        reader.locked[move.at].append(pages)
        for code in dict.fromkeys(book.owner[pages].tolist()):
            nodes.dirty[code >> 2] = nodes.by_id[code >> 2]


def _depth(mirror: NodeMirror) -> int:
    return mirror.end_page


def _drop(ticket: Ticket, tickets: TicketBook) -> None:
    """Releases the pages that no node has any more."""
    kept = []
    for slot, pages in ticket.pins:
        book = tickets.pages[slot]
        gone = book.owner[pages] & 3 != NODE
        book.locks[pages[gone]] -= 1
        kept.append((slot, pages[~gone]))
    ticket.pins = kept


class Known(NamedTuple):
    """A node on the path of a prompt, and the depth down to which it has the prompt's pages."""

    mirror: NodeMirror
    depth: int


def known_path(nodes: NodeBook, tags: Tags) -> list[Known]:
    """The nodes from the root down that share a page with a prompt."""
    path: list[Known] = []
    above, at = nodes.root, 0
    while at < len(tags):
        below = above.node.children.values() if above.node is not None else ()
        mirrors = (nodes.by_id.get(child.id) for child in below)
        step = next((one for one in mirrors if one is not None and one.tags[0] == tags[at]), None)
        if step is None:
            break
        upto = min(step.end_page, len(tags))
        same = int((step.tags[: upto - at] == tags[at:upto]).cumprod().sum())
        path.append(Known(step, at + same))
        if at + same < step.end_page:
            break
        above, at = step, step.end_page
    return path


def _pin_prompt(ticket: Ticket, tickets: TicketBook, nodes: NodeBook) -> None:
    """Pins what a fetch continues."""
    end = len(ticket.prompt)
    for mirror, depth in known_path(nodes, ticket.prompt):
        ticket.path += 1
        ticket.nodes.insert(0, mirror.id)  # the deepest first
        for kind in tickets.kinds:
            slot = tickets.width + kind.at
            pages = mirror.pages[slot]
            whole = depth == mirror.end_page == end
            required = depth > end - kind.need if kind.positional else whole
            if pages is not None and required:
                tickets.pages[slot].locks[pages] += 1
                ticket.pins.append((slot, pages))
                nodes.dirty[mirror.id] = mirror


@dataclass
class PinMirror:
    """A pin. held: pages of its prefix that it locks. locked: (slot, pages) of each node."""

    tags: Tags
    held: int = 0
    locked: list[tuple[int, Pages]] = field(default_factory=list)


class WantBook:
    """pins: by number. moved: the pinned prefixes that this operation took, gave up or extended, as
    far as they are held.
    """

    def __init__(self, pages: list[PageBook], nodes: NodeBook) -> None:
        self.pages = pages
        self.nodes = nodes
        self.pins: dict[PinId, PinMirror] = {}
        self.moved: list[Tags] = []

    def pinned(self) -> dict[int, set[int]]:
        """By slot, the pages that pins lock."""
        found: dict[int, set[int]] = {}
        for pin in self.pins.values():
            for slot, pages in pin.locked:
                found.setdefault(slot, set()).update(pages.tolist())
        return found

    def flushed(self) -> None:
        """The tree is gone, and all locks with it."""
        for pin in self.pins.values():
            pin.held, pin.locked = 0, []

    def hear(self, view: CoreView) -> None:
        """Files the pins that this operation took, gave up, or extended."""
        if not self.pins and not view.pins:
            return
        for number in [number for number in self.pins if number not in view.pins]:
            pin = self.pins.pop(number)
            self._add(pin, -1)
            self.moved.append(pin.tags[: pin.held])
        for number, record in view.pins.items():
            if number not in self.pins:
                self.pins[number] = PinMirror(tags_of(record.key))
            pin = self.pins[number]
            if pin.held == record.held_pages:
                continue
            self._add(pin, -1)
            pin.held, pin.locked = record.held_pages, []
            for index, entries in enumerate(record.receipt.locked):
                for node, tier in entries:
                    pages = node.pages[tier][index]
                    if pages is not None:
                        pin.locked.append((tier * self.nodes.width + index, pages))
            self._add(pin, 1)
            self.moved.append(pin.tags[: pin.held])

    def _add(self, pin: PinMirror, count: int) -> None:
        for slot, pages in pin.locked:
            book = self.pages[slot]
            book.locks[pages] += count
            for code in set(book.owner[pages].tolist()):
                mirror = self.nodes.by_id.get(code >> 2)
                if mirror is not None:
                    self.nodes.dirty[mirror.id] = mirror
