"""A storage is attached, or detached if one is. Drawn with a storage only.

again: attaches a storage also where one is attached, as after it was lost and came back.
"""

from __future__ import annotations

from hicache.core.events import DetachWanted, StorageAttached

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import FLAG, Schema
from .base import Arguments

WEIGHT = 0
RARELY = 20  # percent
ARGS: Schema = {"again": FLAG}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config.has_host or (hand.core.view.attached and not draws.chance(RARELY)):
        return None  # a storage that is detached is soon attached again
    return {"again": draws.chance(30)}


def play(hand: Hand, args: Arguments) -> None:
    if not (hand.config.has_host and hand.can_store):
        return
    detaches = hand.core.view.attached and not args["again"]
    hand.feed(DetachWanted() if detaches else StorageAttached())
