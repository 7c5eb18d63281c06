"""Everything under way ends; what runs keeps running, what waits keeps waiting."""

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
