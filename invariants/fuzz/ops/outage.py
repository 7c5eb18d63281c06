"""The storage is dead while stores fail, and the tree is eroded between one failure and the next.

A store that fails is tried again soon. Evictions drawn one by one seldom come between its tries,
and a storage that dies is often back before the last of them. Here, all stores in flight fail in a
step (`store`), other steps evict or take backups, and the storage is back when time goes on. Drawn
with a storage only, while stores or the backups before them are in flight.
"""

from __future__ import annotations

from hicache.core.actions import Backup, Store
from hicache.core.events import EvictWanted
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import MOST_TOKENS, Schema, listed, number, word
from .base import Arguments

WEIGHT = 0
STEPS = (("store", 5), ("evict device", 4), ("backup", 1), ("evict host", 1))
MOST_STEPS = 12
ARGS: Schema = {
    "steps": listed(word(*(name for name, _ in STEPS)), MOST_STEPS),
    "pages": number(1, MOST_TOKENS),
}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    under_way = {type(one.action) for one in hand.pending} & {Store, Backup}
    if not under_way:
        return None
    first = ["store"] if Store in under_way else ["backup", "store"]
    steps = [draws.weighted(STEPS) for _ in range(draws.between(3, MOST_STEPS - len(first)))]
    return {"steps": [*first, *steps], "pages": draws.one((1, 1, 2, 4))}


def play(hand: Hand, args: Arguments) -> None:
    hand.shelf.dead_until = max(hand.shelf.dead_until, hand.now + 1)
    for step in args.get("steps", ()):
        if step == "store":
            _take(hand, Store)
        elif step == "backup":
            _take(hand, Backup)
        else:
            tier = Tier.DEVICE if step.endswith("device") else Tier.HOST
            for name in reversed(hand.config.components):
                hand.feed(EvictWanted(tier, name, args["pages"]))


def _take(hand: Hand, kind: type[Backup | Store]) -> None:
    """Takes the replies to the actions of this kind that are in flight now."""
    for one in [one for one in hand.pending if isinstance(one.action, kind)]:
        if one in hand.pending:
            hand.take(one)
            hand.finish()
