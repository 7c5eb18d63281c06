"""When the marks of a device were reached, and when the host sees that.

Marks are numbered in the order of their recording. Those of long ago are forgotten: they count as
reached and seen, and their times are not known any more. So a long run needs no more memory than a
short one. Does not move anything; see simulated.
"""

from __future__ import annotations

from array import array

from hicache.core.errors import CallerError

NEVER = -1
UNSEEN = 1 << 62
KEPT = 1 << 16  # marks whose times are known at least


class Marks:
    """See the module. Times in nanoseconds."""

    def __init__(self) -> None:
        self._reached = array("q")
        self._visible = array("q")
        self._forgotten = 0

    @property
    def following(self) -> int:
        """The number of the next mark."""
        return self._forgotten + len(self._reached)

    def record(self, now_ns: int) -> int:
        """The number of a new mark."""
        if len(self._reached) >= 2 * KEPT:
            self._forget(now_ns)
        number = self.following
        self._reached.append(NEVER)
        self._visible.append(UNSEEN)
        return number

    def is_reached(self, mark: int) -> bool:
        place = mark - self._forgotten
        return place < 0 or self._reached[place] != NEVER

    def is_visible(self, mark: int, now_ns: int) -> bool:
        """Whether the host sees that it was reached."""
        place = mark - self._forgotten
        return place < 0 or self._visible[place] <= now_ns

    def reached_ns(self, mark: int) -> int:
        """Raises CallerError for a mark of long ago."""
        if mark < self._forgotten:
            raise CallerError(
                f"mark {mark}: expected one of the last {KEPT:,}, whose times are kept, found one "
                f"of {self._forgotten:,} that were forgotten; ask earlier"
            )
        return self._reached[mark - self._forgotten]

    def reach(self, mark: int, now_ns: int) -> None:
        self._reached[mark - self._forgotten] = now_ns

    def show(self, mark: int, time_ns: int) -> None:
        """The host sees it from this time on."""
        self._visible[mark - self._forgotten] = time_ns

    def _forget(self, now_ns: int) -> None:
        """Forgets the older half, unless one of it is still to be seen."""
        if max(self._visible[:KEPT]) <= now_ns:
            del self._reached[:KEPT], self._visible[:KEPT]
            self._forgotten += KEPT
