"""The desk in front of the replicas: asks the router, and tells it what comes back.

Lives here: the delay of KV events, and what of a core's outcomes a router may see (its KV events,
and that a first token came back). Used with a clock and without one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hicache.core.actions import KvRemoved, KvStored, Outcome, Prefill
from hicache.core.events import Event, PrefillDone
from hicache.core.view import CoreView

from ..workload import Job, Workload
from .options import RouterOptions
from .routers.base import Asked, make


class Desk:
    """now_ns: the time. choices: the replica of each request."""

    def __init__(
        self,
        workload: Workload,
        replicas: int,
        options: RouterOptions,
        now_ns: Callable[[], int],
    ) -> None:
        self.choices: dict[int, int] = {}
        self._workload = workload
        self._router = make(replicas, workload.page_size, options)
        self._delay_ns = options.delay_ns
        self._now_ns = now_ns
        self._late: deque[tuple[int, int, KvStored | KvRemoved]] = deque()

    def choose(self, job: Job) -> int:
        """Sends a request to a replica, and returns its number."""
        while self._late and self._late[0][0] <= self._now_ns():
            _, replica, told = self._late.popleft()
            self._tell(replica, told)
        length = job.input_length
        asked = Asked(
            job.index, job.session, length, lambda: self._workload.key(job, length).page_digests()
        )
        chosen = self._router.choose(asked)
        self._router.sent(asked, chosen)
        self.choices[job.index] = chosen
        return chosen

    def answered(self, request: int) -> None:
        self._router.answered(request)

    def ended(self, request: int) -> None:
        self._router.ended(request)

    def heard(self, replica: int, told: KvStored | KvRemoved) -> None:
        """A core emitted a KV event."""
        if self._delay_ns:
            self._late.append((self._now_ns() + self._delay_ns, replica, told))
        else:
            self._tell(replica, told)

    def _tell(self, replica: int, told: KvStored | KvRemoved) -> None:
        if type(told) is KvStored:
            self._router.stored(replica, told.tier, told.digests)
        else:
            self._router.removed(replica, told.tier, told.digests)


class Window:
    """An observer of one core: passes on what the router may see of it."""

    def __init__(self, desk: Desk, replica: int) -> None:
        self._desk = desk
        self._replica = replica
        self._last: dict[int, int] = {}  # the request of each pass that completes a prompt

    def on_event(self, event: Event, view: CoreView) -> None:
        """Passes on nothing: an answer follows from the event and its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if type(event) is PrefillDone:
            request = self._last.pop(event.flight, None)
            if request is not None and event.ok:
                self._desk.answered(request)
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Prefill:
                assert isinstance(outcome, Prefill)
                if outcome.completes_prompt:
                    self._last[outcome.flight] = outcome.request
            elif kind is KvStored or kind is KvRemoved:
                assert isinstance(outcome, KvStored | KvRemoved)
                self._desk.heard(self._replica, outcome)
