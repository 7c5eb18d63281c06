"""The contract of a scheduler, tested on made-up requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.schedulers.base import Scheduler
from sim.workload import Job

_REQUESTS = 24
_WINDOW = 4


@dataclass(eq=False)
class _Request:
    job: Job
    length: int
    arrival_ns: int
    retractions: int = 0


def wrong(make: Callable[[int], Scheduler[Any]]) -> str:
    """Returns the error of the schedulers that `make(window)` makes, as "expected ..., found ...",
    or "".
    """
    for name in ("push", "push_front", "best", "remove", "__len__"):
        if not callable(getattr(make(_WINDOW), name, None)):
            return f"expected a method {name}, found none"
    for turns in (0, 1, 3):
        found = _served(make, turns)
        if isinstance(found, str) or found != _served(make, turns):
            return found if isinstance(found, str) else "expected the same order twice, found two"
    return ""


def _served(make: Callable[[int], Scheduler[Any]], turns: int) -> list[int] | str:
    """Returns the order in which it serves the requests, or an error. After every `turns` turns, a
    request comes back.
    """
    line: Scheduler[Any] = make(_WINDOW)
    waiting: dict[int, _Request] = {}
    served: list[int] = []
    coming = [_request(index) for index in range(_REQUESTS)]
    for turn in range(4 * _REQUESTS):
        for request in coming[:2]:
            line.push(request)
            waiting[request.job.index] = request
        coming = coming[2:]
        if len(line) != len(waiting):
            return f"expected a length of {len(waiting)}, found {len(line)}"
        if not waiting:
            break
        best: Any = line.best(lambda one: one.length % 7)
        if best is not line.best(lambda one: one.length % 7):
            return "expected best to name the same request until something changes, found two"
        if waiting.pop(best.job.index, None) != best:
            return f"expected best to name a request that waits, found {best!r}"
        line.remove(best)
        served.append(best.job.index)
        if turns and not turn % turns and best.retractions < 1:
            best.retractions += 1
            line.push_front(best)
            waiting[best.job.index] = best
    left = sorted({*range(_REQUESTS)} - {*served})
    return f"expected every request to be served, found {left} left" if waiting or left else served


def _request(index: int) -> _Request:
    job = Job(index, index * 10, 64 * (index % 5 + 1), 8, -1, index % 3 - 1, index % 4 - 1)
    return _Request(job, job.input_length, job.arrival_ns)
