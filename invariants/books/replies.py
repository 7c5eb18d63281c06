"""What the reply to an action means for tickets and requests.

Lives here: the effects of a reply on bytes, tickets and the request that waits for it, filed before
the core's outcomes. Does not file actions (see tickets) and does not contain checks.
"""

from __future__ import annotations

from typing import Any, get_args

from hicache.core.actions import Action, Fetch
from hicache.core.events import BackupDone, FetchDone, LoadDone, PrefillDone, Reply

from .requests import RequestBook
from .tags import NO_TAGS
from .tickets import Ticket, TicketBook

ACTION_OF: dict[Any, type] = {
    reply: action
    for reply in get_args(Reply)
    for action in get_args(Action)
    if reply.__name__ == f"{action.__name__}Done"
}
REPLIES = tuple(ACTION_OF)


def answer(event: Reply, tickets: TicketBook, reqs: RequestBook) -> Ticket | None:
    """Files a reply. Returns the ticket that it answers, or None if that was not open."""
    ticket = tickets.open.get(event.flight)
    if ticket is None:
        return None
    if type(event) is PrefillDone:
        _end_pass(event, ticket, tickets, reqs)
    elif type(event) is LoadDone or type(event) is BackupDone:
        tickets.land(ticket, event.ok)
    else:
        if type(event) is FetchDone and type(ticket.action) is Fetch:
            tickets.deliver(ticket, ticket.action.first_page + event.pages)
        tickets.land(ticket, True)
    tickets.close(ticket)
    req = reqs.by_id.get(ticket.request)
    if type(event) is LoadDone and req is not None and req.load == ticket.id:
        req.load, req.rehold = 0, True
    return ticket


def _end_pass(event: PrefillDone, ticket: Ticket, tickets: TicketBook, reqs: RequestBook) -> None:
    req = reqs.by_id.get(ticket.request)
    if req is None or req.prefill != ticket.id:
        tickets.land_prefill(ticket, False, NO_TAGS)
        return
    req.prefill = 0
    load = tickets.open.get(req.load)
    if event.ok:
        if load is not None:
            tickets.land(load, True)
            req.rehold = True
        req.load = 0
        req.computed_tokens = req.working = ticket.action.end_token  # type: ignore[union-attr]
    tickets.land_prefill(ticket, event.ok, req.tags)
