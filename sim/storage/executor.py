"""What both executors of storage share: the interface, the answers, and what is counted.

An executor answers each `Lookup`, `Fetch`, `Store` and `Delete` once. It asks `Contents` for
the status of each value and moves the bytes of the simulated host. When that happens is decided by
`ImmediateStore` (at once) and `timed` (in virtual time). Answers are pages, counted from the front:

    lookup   the largest n at which every component has what a boundary after n pages requires
    fetch    the largest n such that every page less than n pages behind the first has arrived
    store    how many leading pages are durable
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.core.types import FlightId
from hicache.storage.base import Losses, Status

from .contents import Contents
from .page_bytes import PageBytes


def looked_up(contents: Contents, components: Sequence[str], action: Lookup) -> tuple[int, bool]:
    """The answer to a lookup, and whether the store has answered. components: in the order of the
    configuration."""
    asked = len(action.digests)
    there: list[tuple[int, list[bool | None]]] = []
    for place, (name, trailing) in enumerate(zip(components, action.trailing_pages, strict=True)):
        known = action.known_pages if place == 0 else 0
        found: list[bool | None] = [True] * known
        found += contents.lookup(name, action.digests[known:])
        there.append((trailing, found))
    answered = not any(one is None for _, found in there for one in found)
    for pages in range(asked, 0, -1):
        first = [max(0, pages - trailing) if trailing else 0 for trailing, _ in there]
        if all(all(found[start:pages]) for start, (_, found) in zip(first, there, strict=True)):
            return pages, answered
    return 0, answered


def arrived(action: Fetch, statuses: Sequence[Sequence[Status]]) -> int:
    """The answer to a fetch. statuses: of the pages of each piece, fewer where it was cut short."""
    missing = [
        piece.first_page + place
        for piece, found in zip(action.pieces, statuses, strict=True)
        for place in range(len(piece.digests))
        if place >= len(found) or found[place] is not Status.DONE
    ]
    if not missing:
        return action.pages
    return min(action.pages, max(0, min(missing) - action.first_page))


def durable(statuses: Sequence[Status]) -> int:
    """The answer to a store. statuses: of all pages of all pieces, in order."""
    leading = 0
    for status in statuses:
        if status is not Status.DONE:
            break
        leading += 1
    return leading


def pieces_within(pieces: Sequence[Piece], values: int) -> list[tuple[Piece, int]]:
    """Each piece, and how many of its pages are among the first `values` of all."""
    found = []
    for piece in pieces:
        taken = min(values, len(piece.digests))
        found.append((piece, taken))
        values -= taken
    return found


def values(action: Fetch | Store) -> int:
    """How many values the action moves."""
    return sum(len(piece.digests) for piece in action.pieces)


@dataclass(slots=True)
class Moved:
    """What a store did: values by component and status, in each direction. short: by flight, the
    status of the first value that did not arrive. losses: of actions that it did not answer."""

    read: dict[str, Counter[Status]] = field(default_factory=dict)
    written: dict[str, Counter[Status]] = field(default_factory=dict)
    short: dict[FlightId, Status] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)


class StoreExecutor:
    """See the module. components: in the order of the configuration. listener: called when a reply
    is ready."""

    def __init__(
        self, contents: Contents, components: Sequence[str], page_bytes: PageBytes
    ) -> None:
        self.contents = contents
        self.moved = Moved()
        self.page_bytes = page_bytes
        self.listener: Callable[[], None] = lambda: None
        self._components = tuple(components)
        self._open: dict[FlightId, StorageAction] = {}
        self._replies: list[StorageReply] = []

    @property
    def unanswered(self) -> int:
        """Number of submitted actions whose reply was not taken yet."""
        return len(self._open) + len(self._replies)

    def is_unanswered(self, flight: FlightId) -> bool:
        """Whether the action was submitted and its reply was not taken yet."""
        return flight in self._open or any(reply.flight == flight for reply in self._replies)

    def submit(self, action: StorageAction) -> None:
        self._open[action.flight] = action

    def start(self) -> None:
        """Begin what is queued. Nothing waits for it here."""

    def poll(self) -> list[StorageReply]:
        """The replies that are ready, in the order in which they became so."""
        replies, self._replies = self._replies, []
        return replies

    def abandon(self, flight: FlightId) -> None:
        """Nobody waits for this flight any more: answer soon."""

    def close(self) -> None:
        self.contents.close()

    def _answer(self, flight: FlightId, reply: StorageReply) -> None:
        if self._open.pop(flight, None) is not None:
            self._replies.append(reply)
            self.listener()

    def _lose(self, action: StorageAction) -> None:
        """The answer of a store that is not there."""
        losses = self.moved.losses
        if type(action) is Lookup:
            losses.lookups_unanswered += len(action.digests)
        elif type(action) is Fetch:
            losses.reads_failed += values(action)
        elif type(action) is Store:
            losses.writes_refused += values(action)
        self._fail(action)

    def _fail(self, action: StorageAction) -> None:
        """Answer an action of which nothing is done."""
        flight = action.flight
        if type(action) is Lookup:
            self._answer(flight, LookupDone(flight))
        elif type(action) is Fetch:
            self._answer(flight, FetchDone(flight))
        elif type(action) is Store:
            self._answer(flight, StoreDone(flight))
        else:
            self._answer(flight, DeleteDone(flight, ok=False))
        self.moved.short[flight] = Status.FAILED

    def _looked_up(self, action: Lookup) -> None:
        pages, answered = looked_up(self.contents, self._components, action)
        if not answered:
            self.moved.short[action.flight] = Status.FAILED
        self._answer(action.flight, LookupDone(action.flight, pages))

    def _fetched(self, action: Fetch, moved: int) -> None:
        """moved: how many values."""
        found: list[list[Status]] = []
        for piece, taken in pieces_within(action.pieces, moved):
            statuses = self.contents.read(piece.component, piece.digests[:taken])
            self.page_bytes.fill(piece, statuses)
            self.moved.read.setdefault(piece.component, Counter()).update(statuses)
            found.append(statuses)
            wrong = next((one for one in statuses if one is not Status.DONE), None)
            if wrong is not None:
                self.moved.short.setdefault(action.flight, wrong)
        self._answer(action.flight, FetchDone(action.flight, arrived(action, found)))

    def _stored(self, action: Store, moved: int) -> None:
        """moved: how many values."""
        found: list[Status] = []
        for piece, taken in pieces_within(action.pieces, moved):
            self.page_bytes.check(piece)
            statuses = self.contents.write(piece.component, piece.digests[:taken])
            self.moved.written.setdefault(piece.component, Counter()).update(statuses)
            found += statuses
            if taken < len(piece.digests):
                break
        self._answer(action.flight, StoreDone(action.flight, durable(found)))

    def _deleted(self, action: Delete) -> None:
        self._answer(action.flight, DeleteDone(action.flight, self.contents.clear()))


class ImmediateStore(StoreExecutor):
    """An executor of storage without a clock: every action ends at the next poll.

    For replays that count hits. Does not model time; see timed.
    """

    def poll(self) -> list[StorageReply]:
        for action in list(self._open.values()):
            if type(action) is Lookup:
                self._looked_up(action)
            elif type(action) is Fetch:
                self._fetched(action, values(action))
            elif type(action) is Store:
                self._stored(action, values(action))
            elif type(action) is Delete:
                self._deleted(action)
        return super().poll()
