"""Evicts some pages of several components from both tiers in one entry.

This leads to nodes with one component here, another there and a third nowhere. Three components
have many such mixtures, and after single evictions the core repairs them too soon.
"""

from __future__ import annotations

from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.files import Value

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema
from .base import Arguments

WEIGHT = 3
MOST_CUTS = 6
ARGS: Schema = {
    "cuts": Value(
        f"a list of 1 to {MOST_CUTS} cuts, each of them [tier 0 or 1, component, pages]",
        lambda value: (
            isinstance(value, list) and 0 < len(value) <= MOST_CUTS and all(map(_is_cut, value))
        ),
    )
}


def _is_cut(cut: object) -> bool:
    if not isinstance(cut, list) or len(cut) != 3:
        return False
    tier, name, pages = cut
    counts = all(type(one) is int for one in (tier, pages)) and 0 <= pages < 1 << 30
    return counts and tier in (0, 1) and isinstance(name, str)


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    names = hand.config.components
    if len(names) < 2:
        return None
    cuts = []
    for _ in range(draws.between(2, MOST_CUTS)):
        # prefer later components: evicting one also evicts those after it
        at = max(draws.below(len(names)), draws.below(len(names)))
        tier = draws.below(2) if hand.config.has_host else 0
        pages = hand.core.view.pool(Tier(tier), at).capacity if draws.chance(30) else 1
        cuts.append([tier, names[at], pages])
    return {"cuts": cuts}


def play(hand: Hand, args: Arguments) -> None:
    for tier, name, pages in args["cuts"]:
        if name in hand.config.components:
            hand.feed(EvictWanted(Tier(tier), name, pages))
