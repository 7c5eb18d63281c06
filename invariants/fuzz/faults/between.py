"""A flush or an eviction occurs while an action runs, before its reply, or just after it."""

from __future__ import annotations

from hicache.core.events import Event, EvictWanted, Flushed, Reply
from hicache.core.types import Tier

from ..records import Pending
from .base import Fault, Player


def _all_of(hand: Player, tier: Tier) -> list[Event]:
    names, sizes = hand.config.components, hand.core.view.pools(tier)
    return [EvictWanted(tier, name, pool.capacity) for name, pool in zip(names, sizes, strict=True)]


class Flush(Fault):
    """Flushes during a copy; refused while a request is admitted or a pass runs."""

    def before(self, hand: Player, one: Pending) -> None:
        hand.feed(Flushed())


class Evict(Fault):
    """Evicts everything that can be evicted from a tier. when: "issued", "before" or "after"."""

    def __init__(self, tier: Tier, when: str) -> None:
        self.tier, self.when = tier, when

    def _evict(self, hand: Player, when: str) -> None:
        for event in _all_of(hand, self.tier) if when == self.when else ():
            hand.feed(event)

    def issued(self, hand: Player, one: Pending) -> None:
        self._evict(hand, "issued")

    def before(self, hand: Player, one: Pending) -> None:
        self._evict(hand, "before")

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        self._evict(hand, "after")


KINDS = {
    "flush during the copy": Flush(),
    "evict device during the copy": Evict(Tier.DEVICE, "issued"),
    "evict host during the copy": Evict(Tier.HOST, "issued"),
    "evict device before the reply": Evict(Tier.DEVICE, "before"),
    "evict host before the reply": Evict(Tier.HOST, "before"),
    "evict device after the reply": Evict(Tier.DEVICE, "after"),
}
