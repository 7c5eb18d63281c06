"""The copies to host that evictions wait for, told apart from those that a use begins.

Lives here: which backups an eviction waits for, and how many device pages their replies free. Known
from the event that began them and from its outcomes. Does not contain checks.

    a use        begins a backup when a pass or a request has ended, after everything else
    an eviction  begins one to make room: for what is asked for, admitted or granted, and for the
                 slots of an insertion, before the request is told that it is cached

With several components it is not always certain for which of them an eviction began a copy. Then
there are several candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hicache.core.actions import Backup, Cached, Outcome, Refused
from hicache.core.events import (
    AdmitWanted,
    ContinueWanted,
    Event,
    EvictWanted,
    PagesWanted,
    PrefillDone,
)

from .kinds import Kind
from .pages import NODE, PageBook
from .tickets import TicketBook

_MAKES_ROOM = (AdmitWanted, ContinueWanted, PagesWanted, EvictWanted)


class WritingBack(NamedTuple):
    """Device pages of a component whose eviction waits for a backup's reply. They are equal unless
    it is uncertain for which component some eviction began its copy."""

    least: int
    most: int


def lacked(device: Sequence[PageBook], free_before: Sequence[int]) -> list[bool]:
    """By component, whether fewer device pages were free than this operation took."""
    return [
        sum(len(taken) for taken, code in one.claimed if code & 3 != NODE) > free
        for one, free in zip(device, free_before, strict=False)
    ]


def evicted_by(
    action: Backup,
    event: Event,
    outcomes: Sequence[Outcome],
    kinds: Sequence[Kind],
    lacked: Sequence[bool],
) -> tuple[int, ...]:
    """The components for one of which an eviction began this backup; none if a use began it.

    lacked: by component, whether fewer device pages were free than this operation took.
    """
    if type(event) is EvictWanted:
        return tuple(kind.at for kind in kinds if kind.name == event.component)
    if type(event) is PrefillDone:
        seen = next((item for item in outcomes if type(item) is Cached or item is action), None)
        wanted = [kind for kind in kinds if not kind.positional] if seen is action else []
    elif type(event) in _MAKES_ROOM:
        refused = next((item for item in outcomes if type(item) is Refused), None)
        if refused is None:
            wanted = [kind for kind in kinds if lacked[kind.at]]
        else:  # room is made for one component after the other
            last = next((kind.at for kind in kinds if kind.name == refused.component), 0)
            wanted = list(kinds[: last + 1])
        if type(event) is not AdmitWanted:
            wanted = [kind for kind in wanted if kind.positional]
    else:
        return ()
    copied = {copy.component for copy in action.copies}
    return tuple(kind.at for kind in wanted if not kind.at or kind.name in copied)


def writing_back(tickets: TicketBook, index: int) -> WritingBack:
    """Counts the pages of a component whose eviction waits for an open backup."""
    least = most = 0
    for ticket in tickets.open.values():
        if index in ticket.evicts:
            most += ticket.frees.get(index, 0)
            least += ticket.frees.get(index, 0) if len(ticket.evicts) == 1 else 0
    return WritingBack(least, most)
