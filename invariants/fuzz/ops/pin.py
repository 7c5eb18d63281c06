"""A prefix is pinned: of what is cached, of what a running request will commit, of an earlier
prompt, or of none. A number that is in use must be refused. Drawn where pins are allowed only.
"""

from __future__ import annotations

from hicache.core.events import PinWanted
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..spell import cached, tokens_of
from ..tapes.schema import PROMPT, Schema, number, word
from .arrive import pack, unpack
from .base import Arguments

WEIGHT = 0
MOST_PINS = 4
# Percent of the pins that are on host, if it has room for any: without a storage, and with one.
ON_HOST, ON_HOST_STORED = 40, 65
ARGS: Schema = {"pin": number(0, 99), "tokens": PROMPT, "space": word(), "tier": number(0, 1)}


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    share = ON_HOST_STORED if hand.config.storage else ON_HOST
    tier = Tier.HOST if hand.config.pin_host_pages and draws.chance(share) else Tier.DEVICE
    tokens, space = [draws.below(3)] * hand.config.page_size, ""
    running = hand.pick("decoding", "idle", "prefilling")
    known = cached(hand.core.view, hand.config.page_size, hand.pairs, tier)
    if running and draws.chance(25):
        job = draws.one(running)  # what it will commit, with tokens that it may generate
        tokens, space = [*job.tokens, *[draws.below(3)] * hand.config.page_size], job.namespace
    elif known and draws.chance(60):
        path, space = draws.one(known)
        tokens = tokens_of(path, hand.pairs)
    elif hand.past:
        tokens, space = draws.one(hand.past)
    pages = draws.between(1, max(1, min(8, len(tokens) // hand.config.page_size)))
    tokens = tokens[: pages * hand.config.page_size] or [0]
    return {
        "pin": draws.below(MOST_PINS),
        "tokens": pack(tokens),
        "space": space,
        "tier": int(tier),
    }


def play(hand: Hand, args: Arguments) -> None:
    tokens = unpack(args["tokens"])
    key = hand.key_of(tokens, str(args["space"]))
    event = PinWanted(int(args["pin"]), key, Tier(int(args["tier"])))
    if event.pin in hand.core.view.pins or not key.pages:
        hand.refused(event)
    else:
        hand.feed(event)
