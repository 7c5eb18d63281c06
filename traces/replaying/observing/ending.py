"""What ends a replay before its last request: one request has been served, or so many requests have
missed their limits that the load cannot be served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from hicache.core.actions import Outcome
from hicache.core.events import Event, Finished
from hicache.core.view import CoreView
from sim.engine.sequence import RequestResult
from sim.fleet.fleet import Fleet
from sim.world import World

from ..load import Slo


class Served(Exception):
    """Ends a replay early; everything that ran counts."""


class Until:
    """An observer that ends the run at the first event after a request has finished."""

    def __init__(self, request: int) -> None:
        self._request = request
        self._served = False

    def on_event(self, event: Event, view: CoreView) -> None:
        if self._served:
            raise Served

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if type(event) is Finished and event.request == self._request:
            self._served = True


class Hopeless:
    """Ends a replay of which too many requests missed a limit. slo: the limits; `itl` is not looked
    at before the end. most: requests that may miss them.

    ended: requests that have ended. missed: how many of them missed a limit. stopped: whether the
    replay was ended.
    """

    def __init__(self, slo: Slo, most: int) -> None:
        self._slo, self._most = slo, most
        self._last: Callable[[], RequestResult] | None = None
        self.ended = self.missed = 0
        self.stopped = False

    def begin(self, world: World | Fleet) -> None:
        self._last = world.last

    @contextmanager
    def watching(
        self, shown: AbstractContextManager[Callable[[int], None]]
    ) -> Iterator[Callable[[int], None]]:
        """Shows the progress, and looks at each request that ends."""
        with shown as report:

            def ended(count: int) -> None:
                report(count)
                self._look(count)

            yield ended

    def _look(self, count: int) -> None:
        if self._last is None or count <= self.ended:
            return
        self.ended = count
        self.missed += misses(self._slo, self._last())
        if self.missed > self._most:
            self.stopped = True
            raise Served


def misses(slo: Slo, one: RequestResult) -> bool:
    """Whether a request misses its time to first token, per token, or until its end. Exact, as
    `kept` of load/slo."""
    decode_ns = one.finish_ns - one.first_token_ns
    return (
        (slo.ttft_ns is not None and one.first_token_ns - one.arrival_ns > slo.ttft_ns)
        or (slo.tpot_ns is not None and decode_ns > slo.tpot_ns * (max(1, one.output_length) - 1))
        or (slo.e2e_ns is not None and one.finish_ns - one.arrival_ns > slo.e2e_ns)
    )
