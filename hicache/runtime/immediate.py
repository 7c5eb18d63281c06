"""An executor without a device or a clock: every transfer ends as soon as it is started.

It is for replays that count hits and for measuring the core alone. It does not model time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from hicache.core.actions import Backup, Copy, Load
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.devices.base import Direction

Mover: TypeAlias = Callable[[Direction, Copy], None]


class ImmediateExecutor:
    """mover: called for each copy, in order, to move bytes or a record of them. None: nothing is
    moved."""

    __slots__ = ("_ended", "_mover", "_queued")

    def __init__(self, mover: Mover | None = None) -> None:
        self._mover = mover
        self._queued: deque[Load | Backup] = deque()
        self._ended: deque[Load | Backup] = deque()

    def submit(self, action: Load | Backup) -> None:
        self._queued.append(action)

    def start(self) -> None:
        if self._mover is not None:
            for action in self._queued:
                way = Direction.HOST_TO_DEVICE if type(action) is Load else Direction.DEVICE_TO_HOST
                for copy in action.copies:
                    self._mover(way, copy)
        self._ended += self._queued
        self._queued.clear()

    def poll(self) -> list[Reply]:
        if not self._ended:
            return []
        replies: list[Reply] = [
            LoadDone(action.flight) if type(action) is Load else BackupDone(action.flight)
            for action in self._ended
        ]
        self._ended.clear()
        return replies
