"""A request is aborted, at any stage."""

from __future__ import annotations

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import REQUEST, Schema
from .base import Arguments

WEIGHT = 3
STAGES = ("waiting", "prefilling", "idle", "decoding")
ARGS: Schema = {"request": REQUEST}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    stage = draws.one(STAGES)
    jobs = hand.pick(stage) or hand.pick(*STAGES)
    return {"request": draws.one(jobs).id} if jobs else None


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], *STAGES)
    if job is not None:
        hand.abort(job)
