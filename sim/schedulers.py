"""Admission orders: the queue of waiting requests, and which is admitted next."""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import islice
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from hicache import registry

T = TypeVar("T")  # a waiting request: sim.engine.sequence.Sequence


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
        """Adds a request that was retracted, restarted or parked."""
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
        """Removes the request that `best` returned last; it was admitted or parked."""
        self.queue.remove(request)


class Fcfs(Scheduler[T]):
    """First come, first served."""

    def best(self, reusable: Callable[[T], int]) -> T:
        return self.queue[0]


class LongestPrefix(Scheduler[T]):
    """The request with the longest cached prefix, among the first `window`; between equal ones the
    earlier. One without a cached prefix may wait as long as requests with one keep arriving."""

    def best(self, reusable: Callable[[T], int]) -> T:
        if self.window == 1:
            return self.queue[0]
        return max(islice(self.queue, self.window), key=reusable)


class Priority(Scheduler[Any]):
    """The request with the highest priority; between equal ones the earliest, a retracted one
    first. A low priority may wait as long as higher ones keep arriving."""

    def __init__(self, window: int = 1) -> None:
        super().__init__(window)
        self._heap: list[tuple[int, int, Any]] = []  # (-priority, turn, request)
        self._last = self._first = 0  # last turn numbers given at the end and at the front

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, request: Any) -> None:
        self._last += 1
        heappush(self._heap, (-request.job.priority, self._last, request))

    def push_front(self, request: Any) -> None:
        self._first -= 1
        heappush(self._heap, (-request.job.priority, self._first, request))

    def best(self, reusable: Callable[[Any], int]) -> Any:
        return self._heap[0][2]

    def requests(self) -> Iterable[Any]:
        return (request for _, _, request in self._heap)

    def remove(self, request: Any) -> None:
        heappop(self._heap)


PLUGINS = {
    "fcfs": SimpleNamespace(scheduler=Fcfs),
    "longest_prefix": SimpleNamespace(scheduler=LongestPrefix),
    "priority": SimpleNamespace(scheduler=Priority),
}


def make(name: str, window: int) -> Scheduler[Any]:
    """A new scheduler. Raises CallerError for an unknown name."""
    made: Scheduler[Any] = registry.load(registry.SCHEDULERS, name).scheduler(window)
    return made
