"""PREFETCH-WAIT sees that a request has joined a prefetch in the wrong place."""

from __future__ import annotations

import pytest

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import Arrived
from hicache.core.types import Key
from invariants.base import Violation, load_check
from invariants.watch import Watch


def test_those_that_share_a_prefetch_stand_in_the_order_of_their_arrival() -> None:
    core = Core(Config(1, (8,), (8,), storage=True))
    watch, key = Watch("every", checks=[load_check("prefetch_wait")]), Key.from_tokens([1, 2], 1)

    def feed(event: Arrived) -> None:
        watch.on_event(event, core.view)
        outcomes = core.handle(event)
        (flight,) = core.view.flights.values()
        if event.request == 3:
            flight.waiters.reverse()
        watch.on_outcomes(event, outcomes, core.view)

    feed(Arrived(1, key, 2, 2))
    feed(Arrived(2, key, 2, 2))
    with pytest.raises(Violation, match=r"expected requests \[1, 2, 3\].*found \[3, 2, 1\]"):
        feed(Arrived(3, key, 2, 2))
