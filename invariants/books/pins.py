"""The pages that a transfer pins until its reply.

Lives here: the pins of one ticket, taken when it is filed. Does not release them (see tickets) and
does not contain checks.

    the backbone      of the path to the transfer's boundary, or to the deepest node that it reads,
                      on both tiers
    other components  the pages that it reads
"""

from __future__ import annotations

from .mirror import NodeMirror
from .nodes import NodeBook
from .pages import NODE
from .requests import RequestBook
from .tickets import Ticket, TicketBook


def pin(ticket: Ticket, tickets: TicketBook, nodes: NodeBook, reqs: RequestBook) -> str:
    """Pins the pages of a ticket. Returns "", or the error if it reads a page that no node owns."""
    deepest: NodeMirror | None = None
    for move in ticket.moves:
        slot, _ = tickets.slots(ticket, move.at)
        book = tickets.pages[slot]
        codes = book.owner[move.source].tolist()
        for page, code in zip(move.source.tolist(), codes, strict=True):
            if code & 3 != NODE:
                return f"flight {ticket.id} reads page {page} of no node"
        for code in dict.fromkeys(codes if move.at else codes[-1:]):
            mirror = nodes.by_id[code >> 2]
            nodes.dirty[mirror.id] = mirror
            if deepest is None or mirror.end_page > deepest.end_page:
                deepest = mirror
        if move.at:
            book.locks[move.source] += 1
            ticket.pins.append((slot, move.source))
    for index in ticket.evicts:
        held = deepest.pages[index] if deepest is not None else None
        ticket.frees[index] = 0 if held is None else len(held)
    req = reqs.by_id.get(ticket.request)
    if req is not None and ticket.moves and req.boundary:  # a load pins the path to its boundary
        deepest = nodes.at.get(int(req.tags[req.boundary - 1]), deepest)
    for mirror in nodes.path(deepest.id) if deepest is not None else ():
        ticket.path += 1
        ticket.nodes.append(mirror.id)
        for slot in (0, tickets.width):
            pages = mirror.pages[slot]
            if pages is not None:
                tickets.pages[slot].locks[pages] += 1
                ticket.pins.append((slot, pages))
                nodes.dirty[mirror.id] = mirror
    return ""
