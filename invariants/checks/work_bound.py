"""An operation touches a bounded number of nodes."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.events import Flushed
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import node
from invariants.books.tickets import Ticket


class WorkBound(Check):
    name = "WORK-BOUND"
    sentence = (
        "The number of nodes that an operation touches is bounded by the nodes on the paths that "
        "it uses or copies, the nodes that were added, removed or evicted, their neighbours, and "
        "the nodes whose live distance changed."
    )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history or type(book.event) is Flushed:
            return
        touched = len(view.touched)
        if touched <= 8:
            return
        victims = sum(type(item) is Evicted for item in book.outcomes)
        moved = len(book.nodes.gone) + book.nodes.came
        turned = book.nodes.turned
        most = 8 + 3 * (victims + moved) + 2 * turned
        if touched <= most:
            return
        paths = self._paths(book, view)
        most += paths
        if touched > most:
            self.fail(
                f"{touched} nodes touched by {type(book.event).__name__}; expected at most {most}: "
                f"8 + {paths} on paths + 3 * ({victims} victims + {moved} that came or went) + 2 * "
                f"{turned} that serve another distance now",
                *(node(one) for one in list(view.touched)[:1]),
            )

    def _paths(self, book: Book, view: CoreView) -> int:
        """Number of nodes on the paths of the operation's requests, transfers and pins."""
        asked = getattr(book.event, "request", -1)
        reqs = [
            book.requests.by_id.get(number) for number in {**view.touched_requests, asked: None}
        ]
        tags = [req.tags for req in (*reqs, *book.parted) if req is not None]
        if book.left is not None:
            tags.append(book.left)
        tags += book.wants.moved
        found = sum(tag in book.nodes.at for one in tags for tag in one.tolist())
        tickets = [one for one in (*book.tickets.fresh, book.answered) if one is not None]
        return found + sum(_pinned(book, ticket) for ticket in tickets)


def _pinned(book: Book, ticket: Ticket) -> int:
    """Number of nodes on the path of a transfer: when it began, or more if one of them was split
    since, because its locks are on both halves then.
    """
    now = len(book.nodes.path(ticket.nodes[0])) if ticket.nodes else 0
    return max(ticket.path, now)


def check() -> WorkBound:
    return WorkBound()
