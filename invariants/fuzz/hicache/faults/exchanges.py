"""An exchange of several ranks is lost or doubled on one of them.

The ranks must notice it at once and say who differs (`ranks.Ranks`); real ranks would end there.
"""

from __future__ import annotations

from invariants.fuzz.hicache.faults.base import Fault, Player
from invariants.fuzz.records import Broken, Pending


class Breaks(Fault):
    """The next exchange breaks on a rank. times: how often that rank takes part in it."""

    of_exchanges = True

    def __init__(self, rank: int, times: int) -> None:
        self.one = Broken(rank, times)

    def issued(self, hand: Player, one: Pending) -> None:
        hand.broken = [self.one]


KINDS = {
    "exchange lost on the first rank": Breaks(0, 0),
    "exchange lost on the last rank": Breaks(-1, 0),
    "exchange doubled on the first rank": Breaks(0, 2),
    "exchange doubled on the last rank": Breaks(-1, 2),
}
