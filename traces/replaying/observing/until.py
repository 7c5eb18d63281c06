"""An observer that ends a replay when one request has been served."""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Outcome
from hicache.core.events import Event, Finished
from hicache.core.view import CoreView


class Served(Exception):
    """The request that the replay was to reach has been served."""


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
