"""Marks of a device whose events can only be polled: which marks were reached, and which failed.

Marks of one stream are reached in order, so a mark that was reached shows that all earlier ones
were. The work before a mark may need memory until it has ended (such as page numbers that are being
uploaded), or have a function to call afterwards (a reader). The mark keeps both until it is seen
reached. `Recent` bounds what is known of marks. Does not call CUDA; see `_accelerator`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from hicache.core.errors import CallerError

from .base import Mark

MOST = 1 << 16
V = TypeVar("V")


class Recent(Generic[V]):
    """Values of marks, of which the latest `most` are kept. what: names a value in messages.

    Worker threads call `note`. The thread that learned from the device that a mark was reached
    calls the rest.
    """

    def __init__(self, what: str, most: int = MOST) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._most = most
        self._values: dict[Mark, V] = {}
        self._order: deque[Mark] = deque()
        self._lost = -1

    def __len__(self) -> int:
        return len(self._values)

    def note(self, mark: Mark, value: V) -> None:
        """Keep a value. The oldest one is dropped where there are too many."""
        with self._lock:
            self._values[mark] = value
            self._order.append(mark)
            if len(self._order) > self._most:
                oldest = self._order.popleft()
                if self._values.pop(oldest, None) is not None:
                    self._lost = max(self._lost, oldest)

    def find(self, mark: Mark) -> V | None:
        """The value; None if the mark never had one, or it was taken. Raises CallerError if it may
        have been dropped."""
        found = self._values.get(mark)
        if found is None and mark <= self._lost:
            raise CallerError(
                f"{self._what}: expected one of the {self._most} latest marks that have one, found "
                f"mark {mark}; ask soon after a mark is reached"
            )
        return found

    def take(self, mark: Mark) -> V | None:
        """Like `find`, and forget the value."""
        found = self.find(mark)
        self._values.pop(mark, None)
        return found


class Event(Protocol):
    """The methods of an event that are used here."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


E = TypeVar("E", bound=Event)


class _Waiting(NamedTuple, Generic[E]):
    mark: Mark
    event: E
    kept: list[object]
    after: list[Callable[[], None]]


class Line(Generic[E]):
    """The record of one stream. failed: whether work since the last mark failed.

    kept: objects that work since the last mark needs. after: functions to call when the next mark
    is seen reached.
    """

    __slots__ = ("after", "failed", "kept", "waiting")

    def __init__(self) -> None:
        self.failed = False
        self.kept: list[object] = []
        self.after: list[Callable[[], None]] = []
        self.waiting: deque[_Waiting[E]] = deque()


class Marks(Generic[E]):
    """All marks of one device. `seen` is called with each mark and its event when it is reached."""

    def __init__(self, seen: Callable[[Mark, E], None] | None = None) -> None:
        self._count = 0
        self._unreached: dict[Mark, tuple[Line[E], E]] = {}
        self._failed: Recent[bool] = Recent("failed")
        self._seen = seen

    def __len__(self) -> int:
        """Number of marks not yet seen reached."""
        return len(self._unreached)

    def record(self, line: Line[E], event: E) -> Mark:
        """A new mark for an event. Retires marks that were reached."""
        mark = Mark(self._count)
        self._count += 1
        if line.failed:
            self._failed.note(mark, True)
            line.failed = False
        line.waiting.append(_Waiting(mark, event, line.kept, line.after))
        line.kept, line.after = [], []
        self._unreached[mark] = (line, event)
        while line.waiting and line.waiting[0].mark != mark and line.waiting[0].event.query():
            self._retire(line)
        return mark

    def event(self, mark: Mark) -> E | None:
        """The event to wait for; None if the mark was seen reached."""
        self._check(mark)
        found = self._unreached.get(mark)
        return None if found is None else found[1]

    def reached(self, mark: Mark) -> bool:
        self._check(mark)
        found = self._unreached.get(mark)
        if found is None:
            return True
        line, event = found
        if not event.query():
            return False
        while mark in self._unreached:
            self._retire(line)
        return True

    def failed(self, mark: Mark) -> bool:
        """Whether work before the mark failed. Raises CallerError for a mark that was not reached,
        and for one whose failure may have been forgotten (see `Recent`)."""
        if not self.reached(mark):
            raise CallerError(
                f"failed: expected a mark that was reached, found {mark}; query first"
            )
        return self._failed.find(mark) is not None

    def settle(self, line: Line[E]) -> None:
        """Retire all marks of a stream whose work is known to have ended."""
        while line.waiting:
            self._retire(line)

    def _retire(self, line: Line[E]) -> None:
        waiting = line.waiting.popleft()
        del self._unreached[waiting.mark]
        if self._seen is not None:
            self._seen(waiting.mark, waiting.event)
        for look in waiting.after:
            look()

    def _check(self, mark: Mark) -> None:
        if not 0 <= mark < self._count:
            raise CallerError(f"mark: expected one that this device recorded, found {mark}")
