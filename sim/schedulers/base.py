"""What a scheduler is: the queue of the requests that wait, and who of them is admitted next.

An entry of this folder defines `scheduler(window)`, which makes one. Must not live here: budgets,
batches or the core (sim/engine).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from hicache.core import registry

from ..workload import Job


class Waiting(Protocol):
    """What a scheduler may know of a request.

    job          as it stands in the trace: its length, its priority and its session.
    length       tokens of its prompt; after a preemption what it generated is prompt, too.
    arrival_ns   when it arrived.
    retractions  how often it was preempted.
    """

    @property
    def job(self) -> Job: ...

    @property
    def length(self) -> int: ...

    @property
    def arrival_ns(self) -> int: ...

    @property
    def retractions(self) -> int: ...


T = TypeVar("T", bound=Waiting)


class Scheduler(Generic[T]):
    """The waiting requests in one line, in order of arrival. An order of its own derives from this
    and defines `best`; one that needs other queues defines all of it.

    window: requests that an order may look at that asks for a match of each (`reusable`): only
    those of which it asks need a key in memory.
    """

    def __init__(self, window: int = 1) -> None:
        self.window = window
        self.queue: deque[T] = deque()

    def __len__(self) -> int:
        return len(self.queue)

    def push(self, request: T) -> None:
        """A request has arrived."""
        self.queue.append(request)

    def push_front(self, request: T) -> None:
        """A request was preempted."""
        self.queue.appendleft(request)

    def best(self, reusable: Callable[[T], int]) -> T:
        """Who is next; it stays in the queue. Called only where one waits. reusable: pages that a
        request would find cached now."""
        raise NotImplementedError

    def remove(self, request: T) -> None:
        """The request that `best` named last was admitted."""
        self.queue.remove(request)


def make(name: str, window: int) -> Scheduler[Any]:
    """The scheduler of that name, without requests. Raises CallerError for an unknown one."""
    made: Scheduler[Any] = registry.load(registry.SCHEDULERS, name).scheduler(window)
    return made
