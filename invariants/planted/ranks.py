"""Bugs in what several ranks agree on; they show only with at least two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.events import Event
from hicache.core.types import FlightId
from hicache.runtime import agreement, group, restorable
from hicache.runtime.agreement import Agreement
from hicache.runtime.driver import Driver
from hicache.runtime.group import Call, Group, Turn, Values

from .base import bug

_everywhere = Agreement._everywhere
_agree = Agreement.agree
_end = Agreement.end
_feed = Driver.feed
_combined = group.combined


@bug(Agreement, "end", ranks=2)
def ranks_reply_in_local_order(self: Agreement, reply: Any) -> None:
    """Ranks agree on the number of replies, and each applies those that ended first on it."""
    _end(self, reply)
    for lane in self._lanes.values():
        if reply.flight in lane:
            ahead = sum(one in self._ended for one in lane if one != reply.flight)
            lane.remove(reply.flight)
            lane.insert(ahead, reply.flight)


@bug(Agreement, "agree", rows=("D1",), ranks=2)
def idle_rank_skips_the_collective(self: Agreement) -> Turn[None]:
    """A rank without a finished transfer does not enter the collective at a poll."""
    for reply in self.executor.poll():
        self.end(reply)
    if any(self.leading()):
        yield from _agree(self)


@bug(Agreement, "_everywhere", rows=("D6",), ranks=2)
def one_collective_per_local_reply(self: Agreement) -> Turn[dict[FlightId, int]]:
    """A rank enters one collective per reply of its own, and ranks differ in their number."""
    everywhere = {}
    for flight, mine in self._ended.items():
        [everywhere[flight]] = yield from self.group.minimum("a reply that ended", [mine])
    return everywhere


@bug(Agreement, "_everywhere", rows=("D10",), ranks=2)
def rank_applies_reply_before_agreement(self: Agreement) -> Turn[dict[FlightId, int]]:
    """A rank applies a reply as soon as it has it, before the other ranks have it."""
    yield from _everywhere(self)
    return dict(self._ended)


@bug(Agreement, "_everywhere", rows=("D10",), ranks=2)
def rank_stops_waiting_for_the_others(self: Agreement) -> Turn[dict[FlightId, int]]:
    """A rank applies its own reply after eight polls, although other ranks lack it."""
    everywhere = yield from _everywhere(self)
    waited: dict[int, int] = vars(self).setdefault("waited", {})
    for flight in self._ended.keys() - everywhere.keys():
        waited[flight] = waited.get(flight, 0) + 1
        if waited[flight] == 8:
            everywhere[flight] = self._ended[flight]
    return everywhere


@bug(Agreement, "_everywhere", rows=("D3",), ranks=2)
def rank_zero_decides_success_for_all(self: Agreement) -> Turn[dict[FlightId, int]]:
    """Rank 0 alone decides whether a transfer succeeded, although others may lack its bytes."""
    everywhere = yield from _everywhere(self)
    own = [self._ended[flight] for flight in everywhere]
    found = yield from self.group.broadcast("verdicts of replies", own)
    return dict(zip(everywhere, found, strict=True))


@bug(Agreement, "_everywhere", rows=("D3",), ranks=2)
def ranks_do_not_agree_on_success(self: Agreement) -> Turn[dict[FlightId, int]]:
    """Ranks agree that a transfer has ended, but not on whether it succeeded."""
    everywhere = yield from _everywhere(self)
    return {flight: self._ended[flight] for flight in everywhere}


@bug(agreement, "agree_on_settings", rows=("D9",), ranks=2)
def ranks_do_not_agree_on_capacity(config: Config, group: Group) -> Turn[Config]:
    """Each rank has as many pages as fit into its own memory."""
    yield from ()
    return config


@bug(group, "combined", rows=("D4",), ranks=2)
def reduction_omits_the_last_rank(calls: Sequence[Call]) -> Values:
    """The last rank takes part in every collective, but its values are ignored."""
    return _combined(calls[:-1])


@bug(Driver, "feed", rows=("D7",), ranks=2)
def ranks_use_their_own_clock(self: Driver, event: Event) -> list[Outcome]:
    """Ranks other than the first sometimes give two uses the same time."""
    state: Any = self.core._state
    rank = getattr(getattr(self.executor, "group", None), "rank", 0)
    before = state.tick
    outcomes = _feed(self, event)
    if rank and before % 3 == 0:
        state.tick = before
    return outcomes


@bug(restorable, "offered", components=("full", "swa"), ranks=2)
def ranks_take_the_least_of_their_deepest_boundaries(reply: Any) -> int:
    """A rank stands for every number up to its deepest boundary, also where it has no boundary."""
    return restorable.upto(int(reply[1]))
