"""Evicts pages of one component from one tier."""

from __future__ import annotations

from hicache.core.events import EvictWanted
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema, number, word
from .arrive import NEAR, near
from .base import Arguments

WEIGHT = 8
ARGS: Schema = {"tier": number(0, 1), "component": word(), "pages": number()}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    tier = Tier.DEVICE if draws.chance(65) else Tier.HOST
    at = draws.below(len(hand.config.components))
    capacity = hand.core.view.pool(tier, at).capacity
    pages = capacity if draws.chance(8) else draws.below(4)
    pages = near(hand, draws) // hand.config.page_size if draws.chance(NEAR) else pages
    return {"tier": int(tier), "component": hand.config.components[at], "pages": pages}


def play(hand: Hand, args: Arguments) -> None:
    tier, name = Tier(int(args["tier"])), str(args["component"])
    if name in hand.config.components:
        hand.feed(EvictWanted(tier, name, max(0, int(args["pages"]))))
