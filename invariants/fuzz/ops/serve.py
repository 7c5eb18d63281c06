"""Serves every request to its end with a plain scheduler, which must need a bounded number of
preemptions. Drawn as the last entry of some sequences.
"""

from __future__ import annotations

from ..draws import Draws
from ..hand import Hand
from ..plain import Plain
from ..tapes.schema import MOST_TOKENS, Schema, number
from .arrive import LONGEST
from .base import Arguments

WEIGHT = 0
ARGS: Schema = {
    "more": number(0, MOST_TOKENS),
    "chunk": number(1, MOST_TOKENS),
    "stretch": number(1, MOST_TOKENS),
}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    page = hand.config.page_size
    return {
        "more": draws.between(0, 3 * page),
        "chunk": draws.between(1, LONGEST * page),
        "stretch": draws.one((1, page, 2 * page)),
    }


def play(hand: Hand, args: Arguments) -> None:
    hand.settle()
    left = dict.fromkeys(sorted(hand.jobs), int(args["more"]))
    for job in hand.pick("decoding"):
        before, job.committed = job.committed, len(job.tokens)
        hand.decode(job, job.ids, job.tokens, (before, job.committed))
    Plain(hand, left, int(args["chunk"]), int(args["stretch"])).serve()
