"""The room that an operation tried to make on the device, in a cache with full attention alone.

Lives here: how many pages it wanted, and which prefix its request locked before anything was
evicted. Known from the event, its outcomes and the pools before it. Does not contain checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hicache.core.actions import Admitted, Granted, Outcome, Refused
from hicache.core.events import AdmitWanted, Event, EvictWanted, PagesWanted
from hicache.core.types import Tier

from ..nodes import NodeBook
from ..pages import NODE, PageBook
from ..requests import RequestBook
from ..waiting import WritingBack
from .chances import Chances, Room

_SHORT = ("no_pages", "writing_back")


class Books(Protocol):
    """What is needed of the books."""

    chances: Chances | None
    nodes: NodeBook
    requests: RequestBook
    device: PageBook
    page_size: int
    writing_back_before: list[WritingBack]


def choose_again(books: Books, event: Event, outcomes: Sequence[Outcome]) -> None:
    """Under a policy with second chances, before the operation is filed: repeats the choice of its
    victims."""
    if books.chances is not None:
        books.chances.hear(event, outcomes, books.nodes, _room_of(books, event, outcomes))


def _room_of(books: Books, event: Event, outcomes: Sequence[Outcome]) -> Room:
    device = books.device
    room = Room(device.free, books.writing_back_before[0].most)
    if type(event) is EvictWanted:
        wish = event.pages if event.tier == Tier.DEVICE else 0
        return room._replace(wanted=room.free + wish if wish else 0)
    if type(event) is not AdmitWanted and type(event) is not PagesWanted:
        return room
    req = books.requests.by_id.get(event.request)
    if req is None:
        return room
    length = event.length if type(event) is PagesWanted else req.length
    total = -(-length // books.page_size)
    for item in outcomes:
        if type(item) is Granted:
            return room._replace(wanted=max(0, total - len(req.tables[0])))
        if type(item) is Admitted:
            wanted = max(0, total - item.device_pages - item.host_pages) + sum(item.loaded_pages)
            return room._replace(wanted=wanted, reused=req.known[: item.device_pages])
        if type(item) is Refused and item.reason in _SHORT:
            reused = req.known[: req.expected.device] if type(event) is AdmitWanted else []
            if item.needed <= device.available - _evictable(reused, device):
                return room._replace(wanted=item.needed, reused=reused)
    return room


def _evictable(reused: Sequence[int], device: PageBook) -> int:
    """Cached pages of this prefix that nobody has locked."""
    if not reused:
        return 0
    ours = (device.owner & 3 == NODE) & (device.locks == 0)
    return int(np.isin(device.content[ours], np.array(reused, dtype=np.uint64)).sum())
