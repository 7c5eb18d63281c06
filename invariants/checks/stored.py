"""Stores that are due, and what is believed to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hicache.core.actions import Admitted, Cached, Evicted, Released, Store
from hicache.core.events import BackupDone, StoreDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror, serves
from invariants.books.pages import NODE
from invariants.books.story import flight, node
from invariants.books.tickets import Ticket
from invariants.checks._backups import path_of
from invariants.checks._victims import book_of
from invariants.reasons import Reason

from ._storage import Part, open_storage, parts_of

Place = tuple[int, int]  # component and tag of a prefix


class Stored(Check):
    name = "STORED"
    sentence = (
        "What is believed to be stored was acknowledged since storage was attached. A store begins "
        "only for host copies that are not believed stored nor being stored, no more are in flight "
        "than allowed, and no node is tried more often than allowed without a use. At rest, every "
        "host copy that was backed up or used since the attach is believed stored, unless its "
        "tries ran out or no boundary required it."
    )
    watches = (Store, StoreDone, BackupDone, Evicted, Admitted, Cached, Released)

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[Place, Reason | None] = {}  # host copies to be stored; a reason why not
        self._failures: dict[
            int, int
        ] = {}  # by the tag of a page, failed stores since its last use
        self._answered: list[Part] = []  # the parts of the store that is answered now

    def issue(self, book: Book, item: object, view: CoreView) -> None:
        if type(item) is StoreDone:
            ticket = book.tickets.open.get(item.flight)
            if ticket is None or ticket.id in book.storage.outdated:
                self._answered = []
            else:
                self._answered = list(parts_of(book, ticket))

    def see(self, book: Book, item: object, view: CoreView) -> None:
        if not book.storage.attached:
            return
        if type(item) is Store:
            self._begun(book, item, view)
        elif type(item) is StoreDone:
            self._ended(book, item)
        elif type(item) is BackupDone and book.answered is not None and item.ok:
            for move in book.answered.moves:
                for code in dict.fromkeys(
                    book.pool(Tier.HOST, move.at).owner[move.target].tolist()
                ):
                    mirror = book.nodes.by_id.get(code >> 2) if code & 3 == NODE else None
                    if mirror is not None:
                        self._to_store(book, move.at, mirror)
        elif type(item) is Evicted and item.tier == Tier.HOST:
            pages = book_of(book, item)
            for tag in pages.content[item.pages].tolist():
                self._due.pop((pages.component, tag), None)
        elif type(item) is Admitted:
            req = book.requests.by_id.get(item.request)
            self._tried_anew(req.known[: item.device_pages + item.host_pages] if req else ())
        elif type(item) is Cached or type(item) is Released:
            self._used(book, path_of(book, item))

    def _used(self, book: Book, path: list[NodeMirror]) -> None:
        earlier = [one for one in open_storage(book, Store) if one <= book.tickets.settled]
        parts = [part for one in earlier for part in parts_of(book, book.tickets.open[one])]
        under_way = {part.mirror.id for part in parts if part.mirror is not None}
        for mirror in path:
            tags = mirror.tags.tolist()
            self._tried_anew(tags)
            for kind in book.kinds if mirror.id not in under_way else ():
                if mirror.pages[book.width + kind.at] is not None:
                    self._to_store(book, kind.at, mirror)

    def _tried_anew(self, tags: Iterable[int]) -> None:
        for tag in tags if self._failures else ():
            self._failures.pop(tag, None)

    def _to_store(self, book: Book, at: int, mirror: NodeMirror) -> None:
        """The host copy of the node is to be stored now, if there is no reason against it."""
        kind, tags = book.kinds[at], mirror.tags.tolist()
        tries = max((self._failures.get(tag, 0) for tag in tags), default=0)
        reason = Reason.GIVEN_UP if tries >= book.config.store_tries else None
        if not serves(kind, mirror.live_distance):
            reason = Reason.NOT_REQUIRED
        self._due.update(((at, tag), reason) for tag in (tags if kind.positional else tags[-1:]))

    def _begun(self, book: Book, item: Store, view: CoreView) -> None:
        under_way = open_storage(book, Store)
        if len(under_way) > book.config.max_stores:
            self.fail(
                f"flight {item.flight}: {len(under_way)} stores are in flight, expected at most "
                f"{book.config.max_stores}",
                flight(item.flight),
            )
        others = [book.tickets.open[one] for one in under_way if one != item.flight]
        taken = {place for one in others for place in _places(one)}
        ticket = book.tickets.open[item.flight]
        for part in parts_of(book, ticket):
            mirror, kind = part.mirror, book.kinds[part.at]
            if mirror is None or mirror.node is None:
                continue  # KEY-RT reports it
            tries = max((self._failures.get(tag, 0) for tag in part.tags), default=0)
            useless = bool(part.at) and not serves(kind, mirror.live_distance)
            if view.believed(mirror.node, part.at) or useless or tries >= book.config.store_tries:
                self.fail(
                    f"flight {item.flight} stores {kind.name} of node {mirror.id}: believed stored "
                    f"{view.believed(mirror.node, part.at)}, garbage {useless}, failed {tries} "
                    f"times of {book.config.store_tries}",
                    flight(item.flight),
                    node(mirror.id),
                )
        if not taken.isdisjoint(_places(ticket)):
            self.fail(
                f"flight {item.flight} stores pages that another store reads", flight(item.flight)
            )

    def _ended(self, book: Book, item: StoreDone) -> None:
        """Files the failures of the nodes whose pages are not all durable."""
        failed = [part for part in self._answered if part.end > item.pages]
        nodes = {part.mirror.id: part.mirror for part in failed if part.mirror is not None}
        for mirror in nodes.values():
            for tag in mirror.tags.tolist():
                self._failures[tag] = count = self._failures.get(tag, 0) + 1
                for kind in book.kinds if count >= book.config.store_tries else ():
                    if (kind.at, tag) in self._due:
                        self._due[kind.at, tag] = Reason.GIVEN_UP
        for part in () if failed else self._answered:
            for tag in () if part.mirror is None else part.mirror.tags.tolist():
                self._failures.pop(tag, None)

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history:
            return
        if not book.storage.attached or book.storage.forgotten:
            self._due.clear()
            self._failures.clear()
        for mirror in book.nodes.gone:
            self._tried_anew(mirror.tags.tolist())
        for mirror in book.nodes.dirty.values():
            self._believed(book, mirror, view)
            for kind in book.kinds if book.width > 1 and self._due else ():
                useless = not serves(kind, mirror.live_distance)
                for tag in mirror.tags.tolist() if useless else ():
                    if (kind.at, tag) in self._due:
                        self._due[kind.at, tag] = Reason.NOT_REQUIRED

    def audit(self, book: Book, view: CoreView) -> None:
        for mirror in book.nodes.by_id.values():
            self._believed(book, mirror, view)

    def _believed(self, book: Book, mirror: NodeMirror, view: CoreView) -> None:
        digests, record = mirror.digests or (), mirror.node
        if record is None or mirror.parent is None:
            return
        for kind in book.kinds:
            if not view.believed(record, kind.at):
                continue
            wanted = digests if kind.positional else digests[-1:]
            known = sum((kind.at, one) in book.storage.acknowledged for one in wanted)
            if not book.storage.attached or known < len(wanted) or not wanted:
                self.fail(
                    f"node {mirror.id}: its {kind.name} is believed to be stored; {known} of "
                    f"{len(wanted)} pages were acknowledged since storage was attached",
                    node(mirror.id),
                )

    def still(self, book: Book, view: CoreView) -> None:
        if not book.storage.attached or not book.config.max_stores:
            return
        for mirror in book.nodes.by_id.values():
            record = mirror.node
            for kind in book.kinds if mirror.parent is not None else ():
                place = (kind.at, int(mirror.tags[-1]))
                there = mirror.pages[book.width + kind.at] is not None
                if record is None or not there or place not in self._due:
                    continue
                if view.believed(record, kind.at):
                    continue
                reason = self._due[place]
                if reason is None:
                    self.fail(
                        f"node {mirror.id}: its {kind.name} came to host or was used since storage "
                        "was attached; expected it to be stored, found it is not",
                        node(mirror.id),
                    )
                self.excuse(reason)


def _places(ticket: Ticket) -> Iterator[tuple[int, int]]:
    """The component and number of each page that a store reads."""
    for move in ticket.moves:
        yield from ((move.at, page) for page in move.source.tolist())


def check() -> Stored:
    return Stored()
