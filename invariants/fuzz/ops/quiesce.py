"""Takes all pending replies; requests stay in their stages."""

from __future__ import annotations

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema
from .base import Arguments

WEIGHT = 1
ARGS: Schema = {}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {}


def play(hand: Hand, args: Arguments) -> None:
    hand.settle()
