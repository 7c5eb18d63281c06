"""Sessions take turns: one request of each session at a time, and the session that was served last
goes to the end. Within a session, first come, first served.

A session with many requests does not delay the others. A request without a session counts as a
session of its own. The session of a preempted request goes to the front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain

from .base import Scheduler, T


class RoundRobin(Scheduler[T]):
    def __init__(self, window: int = 1) -> None:
        super().__init__(window)
        self._lines: dict[tuple[bool, int], deque[T]] = {}
        self._turns: deque[tuple[bool, int]] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def push(self, request: T) -> None:
        session = _session(request)
        if session not in self._lines:
            self._lines[session] = deque()
            self._turns.append(session)
        self._lines[session].append(request)
        self._waiting += 1

    def push_front(self, request: T) -> None:
        session = _session(request)
        if session in self._lines:
            self._turns.remove(session)
        self._lines.setdefault(session, deque()).appendleft(request)
        self._turns.appendleft(session)
        self._waiting += 1

    def best(self, reusable: Callable[[T], int]) -> T:
        return self._lines[self._turns[0]][0]

    def requests(self) -> Iterable[T]:
        return chain.from_iterable(self._lines.values())

    def remove(self, request: T) -> None:
        session = self._turns.popleft()
        line = self._lines[session]
        line.popleft()
        self._waiting -= 1
        if line:
            self._turns.append(session)
        else:
            del self._lines[session]


def _session(request: T) -> tuple[bool, int]:
    job = request.job
    return (True, job.session) if job.session >= 0 else (False, job.index)


def scheduler(window: int) -> RoundRobin[T]:
    return RoundRobin(window)
