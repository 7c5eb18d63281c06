"""One of several ranks falls behind: none of its actions ends for a while."""

from __future__ import annotations

from ..records import Pending
from .base import LOST, Fault, Player

BEHIND = 300


def lane_of(rank: int) -> str:
    """The key of a rank in the hand's `slow`."""
    return f"rank {rank}"


class FallsBehind(Fault):
    of_ranks = True

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def issued(self, hand: Player, one: Pending) -> None:
        until = hand.now + BEHIND
        lane = lane_of(self.rank)
        hand.slow[lane] = max(until, hand.slow.get(lane, 0))
        for at, other in enumerate(hand.pending):
            if other.due < LOST:
                hand.pending[at] = other._replace(due=max(other.due, until))


KINDS = {"first rank falls behind": FallsBehind(0), "second rank falls behind": FallsBehind(1)}
