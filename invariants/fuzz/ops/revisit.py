"""What was cached lately has left device, and is wanted again: the way to a load."""

from __future__ import annotations

from hicache.core.events import EvictWanted
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from . import admit, arrive
from .base import Arguments

WEIGHT = 7


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.past or not hand.config.has_host or len(hand.jobs) >= arrive.MOST_JOBS:
        return None
    tokens, space = draws.one(hand.past)
    tokens = [*tokens, draws.below(3)][: arrive.LONGEST * hand.config.page_size]
    number = 1 + max((job for job in hand.used if job < 1 << 20), default=-1)
    cold = [name for name in hand.config.components if draws.chance(70)]
    chunk = draws.between(1, arrive.LONGEST * hand.config.page_size)
    return {
        "request": number,
        "tokens": arrive.pack(tokens),
        "space": space,
        "whole": False,
        "cold": cold,
        "chunk": chunk,
    }


def play(hand: Hand, args: Arguments) -> None:
    for name in args["cold"]:
        if name in hand.config.components:
            at = hand.config.components.index(name)
            pages = hand.core.view.pool(Tier.DEVICE, at).capacity
            hand.feed(EvictWanted(Tier.DEVICE, name, pages))
    arrive.play(hand, args)
    admit.play(hand, args)
