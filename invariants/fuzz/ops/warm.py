"""One or more requests arrive for a prefix that storage has, after the tiers above were emptied.

A storage is attached if there is none. Requests end and replies are taken, so that stores end. Then
device, host or both are emptied by evictions or a flush, or the storage as well (`wipe`). All
requests arrive in one entry, some replies are taken, and they are admitted. Drawn with a storage
only.
"""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.components.base import UNBOUNDED
from hicache.core.events import EvictWanted, Flushed
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import OPTIONAL_FLAG, Schema, number, word
from . import admit, arrive, attach, revisit, wait
from .arrive import number_of
from .base import Arguments

WEIGHT = 0
EMPTY = ("both", "host", "flush", "wipe", "nothing")
ARGS: Schema = {
    **revisit.ARGS,
    "empty": word(*EMPTY),
    "late": number(0, 64),
    "attach": OPTIONAL_FLAG,
}
SOMETIMES = 50  # percent
MOST_BEYOND = 3  # pages behind what is stored


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config.has_host or len(hand.jobs) > arrive.MOST_JOBS:
        return None
    known = [(tokens[:most], space) for tokens, space, most in _stored(hand) if most]
    if not known and draws.chance(SOMETIMES):
        known = hand.past  # what is evicted now may be stored then
    if not known:
        return None
    tokens, space = draws.one(known)
    page = hand.config.page_size
    longest = max(2, page * min(arrive.longest(hand), hand.config.device_pages[0]))
    beyond = draws.between(1, 1 + page * draws.below(MOST_BEYOND))
    tokens = [*tokens[: longest - 1], *[draws.below(3)] * beyond][:longest]
    first = number_of(hand)
    return {
        "request": first,
        "tokens": arrive.pack(tokens),
        "space": space,
        "whole": draws.chance(20),
        "cold": [],
        "chunk": draws.between(1, longest),
        "polls": draws.one((0, 1, 4, 4)),
        "others": [first + more for more in range(1, draws.one((1, 2, 2, 3)))],
        "clear": draws.chance(80),
        "empty": draws.weighted(tuple(zip(EMPTY, (8, 3, 1, 1, 3), strict=True))),
        "late": draws.one((0, 2, 3, 6, 6)),
        "attach": draws.chance(80),
    }


def _stored(hand: Hand) -> Iterator[tuple[list[int], str, int]]:
    """Each prompt with its namespace, and how many of its tokens storage can bring back."""
    page = hand.config.page_size
    trailing = [
        0 if one.window_pages >= UNBOUNDED else one.window_pages
        for one in hand.core.view.components
    ]
    for tokens, space in hand.shelf.prompts:
        digests = hand.key_of(tokens, space).page_digests()
        yield tokens, space, page * hand.shelf.found(digests, trailing)


def play(hand: Hand, args: Arguments) -> None:
    if args.get("attach", False) and not hand.core.view.attached:
        attach.play(hand, {"again": True})
    if args.get("clear", False):
        revisit.clear(hand)
    if args.get("polls", 0):
        wait.play(hand, args)
    if args["empty"] in ("flush", "wipe"):
        hand.feed(Flushed(args["empty"] == "wipe"))
    elif args["empty"] == "both":
        _empty(hand, Tier.DEVICE)
        wait.play(hand, {"polls": 1 + args.get("polls", 0)})  # for what is written back and stored
        _empty(hand, Tier.DEVICE)
    if args["empty"] in ("both", "host"):
        _empty(hand, Tier.HOST)
    several = list(revisit.requests(hand, args))
    for one in several:
        arrive.play(hand, one)
    if args["late"]:
        wait.play(hand, {"polls": args["late"]})
    for one in several:
        admit.play(hand, one)


def _empty(hand: Hand, tier: Tier) -> None:
    for name, pool in zip(hand.config.components, hand.core.view.pools(tier), strict=True):
        hand.feed(EvictWanted(tier, name, pool.capacity))
