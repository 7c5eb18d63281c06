"""Requests as the books know them: their prompt's tags, their table, and which pages are theirs.

Lives here: the retract-old, add-new bookkeeping of requests on the device page book. Must not live
here: nodes, tickets, or verdicts.

    table   |--- shared: nodes' pages, locked ---|--- awaited: a load's ---|--- own ---|
"""

from __future__ import annotations

import numpy as np

from hicache.core.node import Request
from hicache.core.types import NO_PAGES, FlightId, Key, Pages, RequestId

from .pages import REQUEST, PageBook, code_of
from .tags import Tags, run_tags, seed_of


class Seat:
    """One request, waiting or seated. tags: of the prompt's pages, by prefix."""

    __slots__ = (
        "computed",
        "expected",
        "handed",
        "id",
        "known",
        "length",
        "load",
        "match_pages",
        "may_load",
        "own",
        "prefill",
        "seated",
        "shared",
        "table",
        "tags",
    )

    def __init__(self, request: RequestId, key: Key, length: int, match_pages: int) -> None:
        self.id = request
        self.length = length
        self.match_pages = match_pages
        self.tags: Tags = tags_of(key)
        self.known: list[int] = self.tags[:match_pages].tolist()
        self.may_load = True
        self.expected = (0, 0)  # leading pages on device, and behind them on any tier
        self.vacate()

    def vacate(self) -> None:
        self.seated = False
        self.computed = 0  # tokens whose bytes are in the table
        self.table: Pages = NO_PAGES
        self.shared: Pages = NO_PAGES
        self.own: Pages = NO_PAGES
        self.prefill: FlightId = 0
        self.load: FlightId = 0
        self.handed: tuple[Pages, bytes] = (NO_PAGES, b"")  # the last table given out, and a copy


def tags_of(key: Key) -> Tags:
    return run_tags(key.raw, key.stride, 0, seed_of(key.namespace))


class SeatBook:
    """All requests that live."""

    def __init__(self, device: PageBook) -> None:
        self.device = device
        self.by_id: dict[RequestId, Seat] = {}
        self.seated = 0
        self._claims: list[tuple[Seat, Pages]] = []

    def leave(self, seat: Seat, keep_locks: bool) -> Pages:
        """Everything it holds goes back. Returns the shared pages, still locked if asked."""
        shared = seat.shared
        self.device.retract(seat.own, code_of(REQUEST, seat.id))
        if len(shared) and not keep_locks:
            self.device.locks[shared] -= 1
        if seat.seated:
            self.seated -= 1
        seat.vacate()
        return shared

    def retract(self, seat: Seat, request: Request, awaited: int) -> None:
        """First half: give up own pages that are no longer its own."""
        if not seat.seated:
            seat.seated = True
            self.seated += 1
        own = request.table[request.shared + awaited :]
        before, code = seat.own, code_of(REQUEST, seat.id)
        kept, now = len(before), len(own)
        if now >= kept and np.array_equal(own[:kept], before):
            fresh = own[kept:]
        elif now < kept and np.array_equal(before[kept - now :], own):
            self.device.retract(before[: kept - now], code)
            fresh = NO_PAGES
        else:
            self.device.retract(before, code)
            fresh = own
        seat.own, seat.table = own, request.table
        if len(fresh):
            self._claims.append((seat, fresh))
        shared = request.table[: request.shared]
        held = len(seat.shared)
        if len(shared) >= held and np.array_equal(shared[:held], seat.shared):
            self.device.locks[shared[held:]] += 1
        else:
            self.device.locks[seat.shared] -= 1
            self.device.locks[shared] += 1
        seat.shared = shared

    def claim(self) -> None:
        """Second half."""
        for seat, pages in self._claims:
            self.device.claim(pages, code_of(REQUEST, seat.id))
        self._claims.clear()
