"""A waiting request has waited for its prefetch as long as it may. Drawn with a storage only."""

from __future__ import annotations

from hicache.core.events import PrefetchLimitReached

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import REQUEST, Schema
from .base import Arguments

WEIGHT = 0
ARGS: Schema = {"request": REQUEST}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("waiting")
    return {"request": draws.one(jobs).id} if jobs else None


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], "waiting")
    if job is not None:
        hand.feed(PrefetchLimitReached(job.id))
