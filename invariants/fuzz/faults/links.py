"""A link or the host is slow for a while, which delays all replies of a kind."""

from __future__ import annotations

from ..records import Pending
from .base import LOST, SITES, Fault, Player


def postpone(hand: Player, site: str, until: int) -> None:
    """Delays all replies of this kind until `until`."""
    hand.slow[site] = max(until, hand.slow.get(site, 0))
    for at, one in enumerate(hand.pending):
        if type(one.action).__name__ == site and one.due < LOST:
            hand.pending[at] = one._replace(due=max(one.due, until))


class Clog(Fault):
    """Delays all replies of the action's kind."""

    def issued(self, hand: Player, one: Pending) -> None:
        postpone(hand, type(one.action).__name__, hand.now + 300)


class Swizzled(Fault):
    """Delays all replies; the kinds resume one after another in this order."""

    def __init__(self, order: tuple[str, ...]) -> None:
        self.order = order

    def issued(self, hand: Player, one: Pending) -> None:
        for at, site in enumerate(self.order, 1):
            postpone(hand, site, hand.now + 120 * at)


class StalePoll(Fault):
    """The next polls see nothing."""

    def issued(self, hand: Player, one: Pending) -> None:
        hand.blind = 3


class Jump(Fault):
    """Advances time, so that all replies except lost ones are due at once."""

    def issued(self, hand: Player, one: Pending) -> None:
        hand.now += 2000


KINDS = {
    "clog": Clog(),
    "swizzled clog": Swizzled(SITES),
    "swizzled clog, passes first": Swizzled(SITES[::-1]),
    "stale poll": StalePoll(),
    "host pause": Jump(),
}
