"""What both executors of storage share: the interface, the answers, and what is counted.

An executor answers each `Lookup`, `Fetch`, `Store` and `Delete` once. It asks `Contents` for
the status of each value and moves the bytes of the simulated host. When that happens is decided by
`immediate` (at once) and `timed` (in virtual time).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hicache.core.actions import Delete, Fetch, Lookup, StorageAction, Store
from hicache.core.events import DeleteDone, FetchDone, LookupDone, StorageReply, StoreDone
from hicache.core.types import FlightId
from hicache.storage.base import Losses, Status

from .answers import arrived, durable, looked_up, pieces_within, values
from .contents import Contents
from .page_bytes import PageBytes


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
