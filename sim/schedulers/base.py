"""The interface of a scheduler: the queue of waiting requests, and which is admitted next.

A module of this folder defines `scheduler(window)`, which returns a scheduler. Does not handle
budgets, batches or the core (see sim/engine).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from hicache import registry

from ..workload import Job


class Waiting(Protocol):
    """The fields of a request that a scheduler may use.

    job          the job of the trace: length, priority and session.
    length       tokens of its prompt; after a preemption this includes the generated tokens.
    arrival_ns   time of arrival.
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
    """The waiting requests in order of arrival. A subclass defines `best`; a subclass with other
    queues overrides all methods.

    window: number of requests whose match `best` may ask for (`reusable`). Each request that it
    asks about needs its key in memory.
    """

    def __init__(self, window: int = 1) -> None:
        self.window = window
        self.queue: deque[T] = deque()

    def __len__(self) -> int:
        return len(self.queue)

    def push(self, request: T) -> None:
        """Adds a request that has arrived."""
        self.queue.append(request)

    def push_front(self, request: T) -> None:
        """Adds a request that was preempted."""
        self.queue.appendleft(request)

    def best(self, reusable: Callable[[T], int]) -> T:
        """Returns the next request and leaves it in the queue. The queue must not be empty.

        reusable: returns the number of pages of a request that are cached now.
        """
        raise NotImplementedError

    def requests(self) -> Iterable[T]:
        """The waiting requests, in any order."""
        return self.queue

    def remove(self, request: T) -> None:
        """Removes the request that `best` returned last; it was admitted."""
        self.queue.remove(request)


def make(name: str, window: int) -> Scheduler[Any]:
    """Returns a new scheduler with that name. Raises CallerError for an unknown name."""
    made: Scheduler[Any] = registry.load(registry.SCHEDULERS, name).scheduler(window)
    return made
