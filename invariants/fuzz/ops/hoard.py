"""Extra requests take all available device pages, or all but some of one component, or release
them.
"""

from __future__ import annotations

from ..draws import Draws
from ..faults.ballast import FIRST, ONE_BY_ONE, leave, squeeze
from ..hand import Hand
from ..tapes.schema import FLAG, Schema, number, word
from .base import Arguments

WEIGHT = 2
RIVALS = 1 << 21
ARGS: Schema = {"take": FLAG, "leave": number(optional=True), "of": word(optional=True)}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if _held(hand):
        return {"take": False}
    if draws.chance(50):
        return {"take": True}
    names, pools = hand.config.components, hand.config.device_pages
    of = [
        name
        for name, pages in zip(names, pools, strict=True)
        if name == names[0] or pages <= ONE_BY_ONE
    ]
    return {"take": True, "leave": draws.below(4), "of": draws.one(of)}


def play(hand: Hand, args: Arguments) -> None:
    if args["take"]:
        if "leave" in args:
            leave(hand, args.get("of", hand.config.components[0]), args["leave"])
        else:
            squeeze(hand, 100, False)
        return
    for held in _held(hand):
        hand.abort(hand.jobs[held])


def _held(hand: Hand) -> list[int]:
    return [number for number in hand.jobs if FIRST <= number < RIVALS]
