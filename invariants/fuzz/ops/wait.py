"""Lets time pass and takes replies."""

from __future__ import annotations

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema, number
from .base import Arguments

WEIGHT = 18
ARGS: Schema = {"polls": number(1, 64)}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {"polls": draws.between(1, 3)} if hand.pending else None


def play(hand: Hand, args: Arguments) -> None:
    for _ in range(min(64, int(args["polls"]))):
        if not hand.wait():
            return
