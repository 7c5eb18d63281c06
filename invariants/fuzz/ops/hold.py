"""Someone takes every page that can be had on device, or all of those let go again."""

from __future__ import annotations

from ..draws import Draws
from ..faults.ballast import FIRST, squeeze
from ..hand import Hand
from ..schema import FLAG, Schema
from .base import Arguments

WEIGHT = 2
RIVALS = 1 << 21
ARGS: Schema = {"take": FLAG}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {"take": not _held(hand)}


def play(hand: Hand, args: Arguments) -> None:
    if args["take"]:
        squeeze(hand, 100, False)
        return
    for number in _held(hand):
        hand.abort(hand.jobs[number])


def _held(hand: Hand) -> list[int]:
    return [number for number in hand.jobs if FIRST <= number < RIVALS]
