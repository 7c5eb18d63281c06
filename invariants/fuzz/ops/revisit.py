"""One or more requests arrive for a prefix that is cached on host, which leads to loads.

Where nothing is on host alone, and sometimes elsewhere, some components are first evicted from
device. Replies are then taken, so that written-back pages reach host. Then all requests arrive in
one entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.events import EvictWanted
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..records import LEAST_MADE_UP
from ..spell import cached, on_host_alone, tokens_of
from ..tapes.schema import (
    FLAG,
    MOST_TOKENS,
    NEW_REQUEST,
    OPTIONAL_FLAG,
    PROMPT,
    WORDS,
    Schema,
    listed,
    number,
    word,
)
from . import admit, arrive, finish, wait
from .arrive import number_of
from .base import Arguments

WEIGHT = 14
ARGS: Schema = {
    "request": NEW_REQUEST,
    "tokens": PROMPT,
    "space": word(),
    "whole": FLAG,
    "cold": WORDS,
    "chunk": number(1, MOST_TOKENS),
    "polls": number(0, 64, optional=True),
    "others": listed(NEW_REQUEST, 8),
    "clear": OPTIONAL_FLAG,
}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config.has_host or len(hand.jobs) >= arrive.MOST_JOBS:
        return None
    page = hand.config.page_size
    away = on_host_alone(hand.core.view, page, hand.pairs)
    left = away and draws.chance(80)
    known = away if left else cached(hand.core.view, page, hand.pairs, Tier.HOST)
    if known:
        path, space = draws.one(known)
        tokens = tokens_of(path, hand.pairs)
    elif hand.past and draws.chance(30):
        tokens, space = draws.one(hand.past)
    else:
        return None
    longest = max(2, page * min(arrive.longest(hand), hand.config.device_pages[0]))
    beyond = draws.between(1, 1 + page)
    tokens = [*tokens[: longest - 1], *[draws.below(3)] * beyond][:longest]
    every = draws.chance(60)
    cold = [name for name in hand.config.components if every or draws.chance(50)]
    cold = [] if left else cold
    return {
        "request": number_of(hand),
        "tokens": arrive.pack(tokens),
        "space": space,
        "whole": False,
        "cold": cold,
        "chunk": draws.between(1, longest),
        "polls": draws.one((0, 1, 4)),
        "others": [number_of(hand) + more for more in range(1, draws.one((1, 1, 2, 2, 3)))],
        "clear": draws.chance(60),
    }


def play(hand: Hand, args: Arguments) -> None:
    if args.get("clear", False):
        clear(hand)
    for name in args["cold"]:
        if name in hand.config.components:
            at = hand.config.components.index(name)
            pages = hand.core.view.pool(Tier.DEVICE, at).capacity
            hand.feed(EvictWanted(Tier.DEVICE, name, pages))
    if args.get("polls", 0):
        wait.play(hand, args)
    for one in requests(hand, args):
        arrive.play(hand, one)
        admit.play(hand, one)


def requests(hand: Hand, args: Arguments) -> Iterator[Arguments]:
    """The arguments of each arrival. Each further request shares one page less with the first."""
    tokens = arrive.unpack(args["tokens"])
    for turn, request in enumerate((args["request"], *args.get("others", ()))):
        keep = max(1, len(tokens) - turn * hand.config.page_size)
        yield {**args, "request": request, "tokens": arrive.pack(tokens[:keep])}


def clear(hand: Hand) -> None:
    """Takes replies, then finishes decoding requests and retracts idle ones, which frees their
    pages.
    """
    wait.play(hand, {"polls": 2})
    for job in hand.pick("decoding", "idle"):
        if job.stage == "decoding" and job.id < LEAST_MADE_UP:
            finish.play(hand, {"request": job.id, "ahead": 0})
        elif job.id < LEAST_MADE_UP:
            hand.retract(job)
        else:
            hand.abort(job)
