"""One request is alone in the pools, with or without cached pages, and grows until they are full.
Drawn as the last entry of some sequences.
"""

from __future__ import annotations

from hicache.core.events import Flushed
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..plain import Plain
from ..spell import cached, tokens_of
from ..tapes.schema import FLAG, MOST_TOKENS, NEW_REQUEST, PROMPT, Schema, number, word
from . import arrive
from .base import Arguments

WEIGHT = 0
PAGES = 8  # that it grows by at most
ARGS: Schema = {
    "request": NEW_REQUEST,
    "tokens": PROMPT,
    "space": word(),
    "empty": FLAG,
    "chunk": number(1, MOST_TOKENS),
}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    page = hand.config.page_size
    known = cached(hand.core.view, page, hand.pairs, Tier.DEVICE)
    rows, space = draws.one(known) if known else (b"", "")
    tokens = tokens_of(rows, hand.pairs) or [draws.below(3)]
    longest = page * hand.config.device_pages[0]
    tokens = [*tokens, *[draws.below(3)] * draws.between(1, 2 * page)][:longest]
    return {
        "request": arrive.number_of(hand),
        "tokens": arrive.pack(tokens),
        "space": space,
        "empty": draws.chance(20),
        "chunk": draws.between(1, 2 * page),
    }


def play(hand: Hand, args: Arguments) -> None:
    for job in list(hand.jobs.values()):
        hand.abort(job)
    hand.settle()
    if args["empty"]:
        hand.feed(Flushed())
    arrive.play(hand, {**args, "whole": False})
    new = hand.job(args["request"], "waiting")
    if new is not None:
        room = hand.config.device_pages[0] * hand.config.page_size - len(new.tokens)
        most = max(0, min(room, PAGES * hand.config.page_size))
        Plain(hand, {new.id: most}, int(args["chunk"]), hand.config.page_size).serve()
