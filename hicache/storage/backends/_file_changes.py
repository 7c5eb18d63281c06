"""Changes of the index of a file store: whole or none, also on a disk that has no room for them.

A change is one transaction. If the disk is full, three things make room for it, one after the
other: SQLite's log begins anew, the reserve is given up (`_file_data`), and the coldest segment.
What was to be changed at once is changed in parts then.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from ..base import Status, tell
from . import _file_room as room
from ._file_data import Data, Reserve, is_full

REFUSED = (OSError, sqlite3.Error)

One = TypeVar("One")
Done = TypeVar("Done")


class Changes:
    """base: a connection that may be used from any thread. file_uses: brings the uses of values
    that wait for a change into one, so that the coldest are known."""

    def __init__(
        self,
        base: sqlite3.Connection,
        data: Data,
        reserve: Reserve | None,
        file_uses: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._base, self._data, self._reserve = base, data, reserve
        self._file_uses = file_uses
        self.gone: list[int] = []  # segments whose files are to be deleted
        self.lock = threading.RLock()
        self.count = 0  # of changes

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: no other process changes the index or the segments meanwhile."""
        with self.lock:
            self._base.execute("BEGIN IMMEDIATE")
            waiting = len(self.gone)
            self._data.made.clear()
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                del self.gone[waiting:]
                for segment in self._data.made:
                    self._data.delete(segment)
                raise
            self.count += 1
            gone, self.gone = self.gone, []
            for segment in gone:  # only now does nobody look there
                try:
                    self._data.delete(segment)
                except OSError:
                    self.gone.append(segment)

    def drop(self, segment: int, counted: str = "evicted") -> None:
        """Remove a segment with the change under way. counted: the total of what was in it."""
        room.tally(self._base, counted, room.drop(self._base, segment))
        self.gone.append(segment)

    def in_parts(
        self,
        change: Callable[[Sequence[One]], list[Done]],
        items: Sequence[One],
        refused: Callable[[Exception], Done],
    ) -> list[Done]:
        """Make a change for all of them, in parts where it must be; what became of each. What is
        left is `refused` when even one has no room, or for another error."""
        done: list[Done] = []
        size = len(items)
        while len(done) < len(items):
            part = items[len(done) : len(done) + size]
            try:
                done += self._insist(partial(change, part), alone=size == 1)
            except REFUSED as error:
                if size == 1 or not is_full(error):
                    return done + [refused(error)] * (len(items) - len(done))
                size //= 2
        return done

    def _insist(self, change: Callable[[], Done], alone: bool) -> Done:
        """Make a change. Where the disk has no room for it, find some and try again. alone: it is
        the smallest part, so a segment may go for it."""
        with self.lock:
            try:
                return change()
            except REFUSED as error:
                if self._reserve is None:
                    raise
                refusal = error
            with self._reserve.locked():
                ways = [self._restart_log]
                if self._reserve.lacks(refusal):
                    ways += [self._reserve.give, *([self._give_up] if alone else [])]
                for found_room in ways:
                    try:
                        if found_room():
                            return change()
                    except REFUSED as error:
                        refusal = error
        raise refusal

    def _restart_log(self) -> bool:
        """File what SQLite has logged, so that the room of the log is used again."""
        with suppress(sqlite3.Error):
            self._base.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        return True

    def _give_up(self) -> bool:
        """End the coldest segment, its file first: the index has its room then."""
        with self.change() as base:
            self._file_uses(base)
            coldest = room.coldest_segment(base)
            if coldest is not None:
                self._data.delete(coldest.number)
                self.drop(coldest.number)
        return coldest is not None


def failed(error: Exception) -> Status:
    """What becomes of a value that cannot be changed."""
    tell(error)
    return Status.FAILED


def status_of(error: Exception) -> Status:
    """What becomes of a value that the system refuses."""
    tell(error)
    return Status.FULL if is_full(error) else Status.FAILED
