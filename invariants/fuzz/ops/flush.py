"""Flushes the cache; refused while a request is admitted or a pass runs."""

from __future__ import annotations

from hicache.core.events import Flushed

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema
from .base import Arguments

WEIGHT = 1
ARGS: Schema = {}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if draws.chance(50) or not hand.pick("prefilling", "idle", "decoding") else None


def play(hand: Hand, args: Arguments) -> None:
    hand.feed(Flushed())
