"""What a device still knows of its latest marks. It is bounded, so that a long run does not grow.

Does not record marks; see `_marks` and `cpu`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

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
