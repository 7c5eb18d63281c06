"""A decoding request finishes; its last step may have run ahead of the committed tokens."""

from __future__ import annotations

from hicache.core.events import Finished
from invariants.books.kinds import interval_of

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import REQUEST, Schema, number
from .base import Arguments

WEIGHT = 10
ARGS: Schema = {"request": REQUEST, "ahead": number()}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding")
    if not jobs:
        return None
    config = hand.config
    ahead = draws.between(1, interval_of(config))
    return {"request": draws.one(jobs).id, "ahead": ahead if draws.chance(25) else 0}


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], "decoding")
    if job is None:
        return
    least = max(job.prompt, job.told)
    job.committed = max(least, job.committed - max(0, int(args["ahead"])))
    hand.feed(Finished(job.id, hand.key(job, job.committed), job.committed))
    hand.remember(job.tokens[: job.committed], job.namespace)
    del hand.jobs[job.id]
