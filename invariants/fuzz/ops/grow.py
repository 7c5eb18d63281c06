"""A decoding request asks for pages, and generates as many tokens as it was granted."""

from __future__ import annotations

from hicache.core.actions import Granted, Refused
from hicache.core.events import PagesWanted

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import MOST_TOKENS, REQUEST, Schema, number
from .arrive import NEAR, near
from .base import Arguments

WEIGHT = 14
MOST_MORE = 40  # pages
ARGS: Schema = {
    "request": REQUEST,
    "more": number(1, MOST_TOKENS),
    "behind": number(-1),
    "word": number(),
}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    jobs = hand.pick("decoding")
    if not jobs:
        return None
    page = hand.config.page_size
    more = draws.between(1, 2 * page + 1)
    job = draws.one(jobs)
    if draws.chance(NEAR):
        more = max(1, min(MOST_MORE * page, near(hand, draws) - draws.one((0, len(job.tokens)))))
    behind = draws.below(4)
    told = -1 if behind == 3 else behind * page
    return {"request": job.id, "more": more, "behind": told, "word": draws.below(3)}


def play(hand: Hand, args: Arguments) -> None:
    job = hand.job(args["request"], "decoding")
    if job is None:
        return
    more, behind = max(1, int(args["more"])), int(args["behind"])
    computed = max(0, job.committed - behind) if behind >= 0 else 0
    outcomes = hand.feed(PagesWanted(job.id, len(job.tokens) + more, computed))
    job.told = max(job.told, computed)
    if any(isinstance(item, Refused) and item.reason == "too_large" for item in outcomes):
        return
    if not any(isinstance(item, Granted) for item in outcomes):
        hand.give_way(outcomes)
        return
    job.tokens += [int(args["word"])] * more
    before, job.committed = job.committed, len(job.tokens) - 1
    hand.decode(job, job.ids, job.tokens, (before, job.committed))
