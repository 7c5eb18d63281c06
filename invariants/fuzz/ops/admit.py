"""The scheduler admits a waiting request."""

from __future__ import annotations

from hicache.core.actions import Refused
from hicache.core.events import AdmitWanted

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import MOST_TOKENS, REQUEST, Schema, number
from .arrive import LONGEST, NEAR, near
from .base import Arguments

WEIGHT = 22
ARGS: Schema = {"request": REQUEST, "chunk": number(1, MOST_TOKENS)}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("waiting")
    if not jobs:
        return None
    chunk = draws.between(1, LONGEST * hand.config.page_size)
    chunk = min(MOST_TOKENS, near(hand, draws)) if draws.chance(NEAR) else chunk
    return {"request": draws.one(jobs).id, "chunk": chunk}


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], "waiting")
    if job is None:
        return
    outcomes = hand.feed(AdmitWanted(job.id, max(1, int(args["chunk"]))))
    if any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes):
        hand.abort(job)
