"""A pinned prefix is given up. A number that is not in use must be refused. Drawn where pins are
allowed only.
"""

from __future__ import annotations

from hicache.core.events import UnpinWanted

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema, number
from .base import Arguments
from .pin import MOST_PINS

WEIGHT = 0
ARGS: Schema = {"pin": number(0, 99)}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.core.view.pins and not draws.chance(5):
        return None
    return {"pin": draws.below(MOST_PINS)}


def play(hand: Hand, args: Arguments) -> None:
    event = UnpinWanted(int(args["pin"]))
    if event.pin in hand.core.view.pins:
        hand.feed(event)
    else:
        hand.refused(event)
