"""A period of time ends. Drawn where copies expire only."""

from __future__ import annotations

from hicache.core.events import TimePassed

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema
from .base import Arguments

WEIGHT = 0
ARGS: Schema = {}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if hand.config.ttl_periods else None


def play(hand: Hand, args: Arguments) -> None:
    if hand.config.ttl_periods:
        hand.feed(TimePassed())
    else:
        hand.refused(TimePassed())
