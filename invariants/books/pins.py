"""What a transfer pins until its reply.

Lives here: the pins of one ticket, taken when it is filed. Must not live here: when they end
(`tickets`), or verdicts.

    the backbone      of the path to the boundary that it is for, or to the deepest node that it
                      reads, on both tiers
    other components  what it reads
"""

from __future__ import annotations

from .mirror import NodeMirror
from .nodes import NodeBook
from .pages import NODE
from .requests import RequestBook
from .tickets import Ticket, TicketBook


def pin(ticket: Ticket, tickets: TicketBook, nodes: NodeBook, reqs: RequestBook) -> str:
    """Says what it reads that is no node's, and pins nothing more then; nothing where all is."""
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
    req = reqs.by_id.get(ticket.request)
    if req is not None and ticket.moves and req.boundary:  # a load: to the boundary it is for
        deepest = nodes.at.get(int(req.tags[req.boundary - 1]), deepest)
    for mirror in nodes.path(deepest.id) if deepest is not None else ():
        ticket.path += 1
        for slot in (0, tickets.width):
            pages = mirror.pages[slot]
            if pages is not None:
                tickets.pages[slot].locks[pages] += 1
                ticket.pins.append((slot, pages))
                nodes.dirty[mirror.id] = mirror
    return ""
