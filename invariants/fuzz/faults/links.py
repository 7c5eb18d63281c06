"""What carries the bytes, or the host, is slow for a while: every reply of a kind feels it."""

from __future__ import annotations

from ..records import Pending
from .base import LOST, SITES, Fault, Player


def postpone(hand: Player, site: str, until: int) -> None:
    """Nothing of this kind is there before `until`."""
    hand.slow[site] = max(until, hand.slow.get(site, 0))
    for at, one in enumerate(hand.pending):
        if type(one.action).__name__ == site and one.due < LOST:
            hand.pending[at] = one._replace(due=max(one.due, until))


class Clog(Fault):
    """The action's own lane stands still."""

    def issued(self, hand: Player, one: Pending) -> None:
        postpone(hand, type(one.action).__name__, hand.now + 300)


class Swizzled(Fault):
    """Every lane stands still, and they come back one after another, the youngest first."""

    def __init__(self, order: tuple[str, ...]) -> None:
        self.order = order

    def issued(self, hand: Player, one: Pending) -> None:
        for at, site in enumerate(self.order, 1):
            postpone(hand, site, hand.now + 120 * at)


class StalePoll(Fault):
    """The host does not see what is there, for some polls."""

    def issued(self, hand: Player, one: Pending) -> None:
        hand.blind = 3


class Jump(Fault):
    """The host was away: everything that is not lost is there at once."""

    def issued(self, hand: Player, one: Pending) -> None:
        hand.now += 2000


KINDS = {
    "clog": Clog(),
    "swizzled clog": Swizzled(SITES),
    "swizzled clog, passes first": Swizzled(SITES[::-1]),
    "stale poll": StalePoll(),
    "host pause": Jump(),
}
