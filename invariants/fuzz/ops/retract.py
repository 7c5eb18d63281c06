"""A running request is retracted: it frees its pages and waits again."""

from __future__ import annotations

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import REQUEST, Schema
from .base import Arguments

WEIGHT = 3
ARGS: Schema = {"request": REQUEST}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding", "idle")
    return {"request": draws.one(jobs).id} if jobs else None


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], "decoding", "idle")
    if job is not None:
        hand.retract(job)
