"""Requests the next chunk of a prompt."""

from __future__ import annotations

from hicache.core.events import ContinueWanted

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import MOST_TOKENS, REQUEST, Schema, number
from .arrive import LONGEST
from .base import Arguments

WEIGHT = 12
ARGS: Schema = {"request": REQUEST, "chunk": number(1, MOST_TOKENS)}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("idle")
    if not jobs:
        return None
    chunk = draws.between(1, LONGEST * hand.config.page_size)
    return {"request": draws.one(jobs).id, "chunk": chunk}


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], "idle")
    if job is not None:
        hand.give_way(hand.feed(ContinueWanted(job.id, max(1, int(args["chunk"])))))
