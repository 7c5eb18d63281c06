"""Flushes the cache, and sometimes its storage; refused while a request or a pass runs."""

from __future__ import annotations

from hicache.core.events import Flushed

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import OPTIONAL_FLAG, Schema
from .base import Arguments

WEIGHT = 1
ARGS: Schema = {"storage": OPTIONAL_FLAG}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if not draws.chance(50) and hand.pick("prefilling", "idle", "decoding"):
        return None
    return {"storage": draws.chance(30)} if hand.config.storage else {}


def play(hand: Hand, args: Arguments) -> None:
    hand.feed(Flushed(bool(args.get("storage", False))))
