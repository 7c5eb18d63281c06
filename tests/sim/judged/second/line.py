"""The queue of waiting requests, a second time: one plain list, and the rule of each order.

Does not use sim/schedulers, with which it is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sim.workload import Job


class Waiting(Protocol):
    job: Job


Reusable = Callable[[Waiting], int]


class Line:
    """The waiting requests, in order of arrival; one that was preempted stands in front.

    turns: the sessions in the order in which they take turns, for round-robin.
    """

    def __init__(self, order: str, window: int) -> None:
        self.order = order.replace("_", "-")
        self.window = window
        self.waiting: list[Waiting] = []
        self.turns: list[object] = []

    def push(self, request: Waiting) -> None:
        self.waiting.append(request)
        if _session(request) not in self.turns:
            self.turns.append(_session(request))

    def push_front(self, request: Waiting) -> None:
        self.waiting.insert(0, request)
        session = _session(request)
        self.turns = [session, *(one for one in self.turns if one != session)]

    def best(self, reusable: Reusable) -> Waiting:
        line = self.waiting
        if self.order == "priority":
            return max(line, key=lambda one: one.job.priority)
        if self.order == "round-robin":
            return next(one for one in line if _session(one) == self.turns[0])
        if self.order == "longest-prefix" and self.window > 1:
            return max(line[: self.window], key=reusable)
        return line[0]

    def remove(self, request: Waiting) -> None:
        self.waiting.remove(request)
        session = _session(request)
        self.turns.remove(session)
        if any(_session(one) == session for one in self.waiting):
            self.turns.append(session)


def _session(request: Waiting) -> object:
    """A request without a session is one of its own."""
    return request.job.session if request.job.session >= 0 else ("alone", request.job.index)
