"""A request arrives. Its prompt often starts like a cached prefix or like an earlier prompt."""

from __future__ import annotations

from hicache.core.components.base import UNBOUNDED
from hicache.core.events import Arrived
from hicache.core.radix.node import Pin
from hicache.core.types import MOST_PRIORITY, Tier

from ..draws import Draws
from ..hand import Hand, Job
from ..records import LEAST_MADE_UP
from ..spell import cached, tokens_of
from ..tapes.schema import FLAG, NEW_REQUEST, PROMPT, Schema, number, word
from .base import Arguments

WEIGHT = 12
MOST_JOBS = 6
MOST_ADDED = 4  # pages behind a known beginning
NEAR = 20  # percent of the lengths that are near a number in the state
BESIDE_PIN = 60  # percent of the prompts, while a pin holds device pages of a small pool
OTHER_SPACE = 6  # percent of the known beginnings that are asked for in another namespace
LONGEST, LONGEST_IN_LARGE_POOLS = 12, 40  # pages
ARGS: Schema = {
    "request": NEW_REQUEST,
    "tokens": PROMPT,
    "space": word(),
    "whole": FLAG,
    "priority": number(-MOST_PRIORITY, MOST_PRIORITY, optional=True),
}
PRIORITIES = (0, 0, 1, 2, -1)


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if len(hand.jobs) >= MOST_JOBS:
        return None
    page = hand.config.page_size
    most = longest(hand) * page
    if draws.chance(80):  # a prompt for which the pool is too small ends at once
        most = min(most, hand.config.device_pages[0] * page)
    words = [draws.below(3) for _ in range(LONGEST)]
    size = min(draws.between(1, most), draws.between(1, most))
    if draws.chance(NEAR):
        size = min(most, near(hand, draws))
    tokens = [words[at // page % LONGEST] for at in range(size)]
    old, space = _beginning(hand, draws)
    if old:
        keep = len(old) if draws.chance(70) else draws.between(1, len(old))
        keep = min(keep, most - 1)
        tokens = old[:keep] + tokens[: max(1, min(most - keep, MOST_ADDED * page))]
        if draws.chance(OTHER_SPACE):
            space = "" if space else "lora"
    pins = _pins(hand)
    if pins and draws.chance(BESIDE_PIN):
        tokens, space = _beside(hand, draws, draws.one(pins))
    whole = draws.chance(20)
    args: Arguments = {
        "request": number_of(hand),
        "tokens": pack(tokens),
        "space": space,
        "whole": whole,
    }
    terms = getattr(hand.core.view.eviction, "order", ())
    if not terms or any(term.fact == "priority" for term in terms):
        args["priority"] = draws.one(PRIORITIES)
    return args


def near(hand: Hand, draws: Draws) -> int:
    """A number of tokens at, one below or one above a number of pages that decides something: what
    is free or at hand in a pool, its size, or what a component requires."""
    view, page = hand.core.view, hand.config.page_size
    pools = (*view.pools(Tier.DEVICE), *view.pools(Tier.HOST))
    pages = [count for pool in pools for count in (pool.free, pool.available, pool.capacity)]
    pages += [one.window_pages for one in view.components if one.window_pages < UNBOUNDED]
    return max(1, page * draws.one(pages) + draws.one((-page, -1, 0, 0, 1, page)))


def _pins(hand: Hand) -> list[Pin]:
    """What holds device pages of a pool that a prompt can fill."""
    if hand.config.device_pages[0] > LONGEST_IN_LARGE_POOLS:
        return []
    pins = hand.core.view.pins.values()
    return [pin for pin in pins if pin.tier == Tier.DEVICE and pin.held_pages > 1]


def _beside(hand: Hand, draws: Draws, pin: Pin) -> tuple[list[int], str]:
    """A prompt that begins like a pinned prefix, and is about as long as a request may be that
    shares its beginning with it."""
    page = hand.config.page_size
    beginning = tokens_of(pin.key.raw, hand.pairs)
    shared = draws.between(1, pin.held_pages - 1)
    added = hand.config.device_pages[0] - pin.held_pages + draws.one((-1, 0, 1))
    other = (beginning[shared * page - 1] + draws.between(1, 2)) % 3
    return beginning[: shared * page] + [other] * max(1, added * page), pin.key.namespace


def longest(hand: Hand) -> int:
    """The most pages of a drawn prompt."""
    return max(LONGEST, min(LONGEST_IN_LARGE_POOLS, hand.config.device_pages[0] // 4))


def _beginning(hand: Hand, draws: Draws) -> tuple[list[int], str]:
    """Returns the tokens with which a prompt starts, and its namespace: those of a prefix that is
    cached on device now, of a request that runs with what it has generated, of an earlier prompt,
    or none.
    """
    source = draws.weighted((("cached", 50), ("running", 12), ("past", 20), ("none", 18)))
    running = hand.pick("decoding", "idle", "prefilling")
    if source == "running" and running:
        job = draws.one(running)
        return job.tokens, job.namespace
    if source == "cached":
        known = cached(hand.core.view, hand.config.page_size, hand.pairs, Tier.DEVICE)
        if known:
            path, space = draws.one(known)
            return tokens_of(path, hand.pairs), space
    if source != "none" and hand.past:
        return draws.one(hand.past)
    return [], draws.one(("", "", "", "lora"))


def play(hand: Hand, args: Arguments) -> None:
    number, tokens = int(args["request"]), unpack(args["tokens"])
    if number in hand.used or not tokens:
        return
    hand.used.add(number)
    job = Job(number, tokens, str(args["space"]), len(tokens))
    hand.jobs[number] = job
    hand.prompts[number] = tuple(tokens)
    hand.remember(tokens, job.namespace)
    if hand.content is not None:
        hand.content.extend(job.ids, job.namespace, tokens)
    page = hand.config.page_size
    reusable = len(tokens) // page if args["whole"] else (len(tokens) - 1) // page
    priority = int(args.get("priority", 0))
    hand.feed(Arrived(number, hand.key(job, len(tokens)), len(tokens), reusable, priority))


def number_of(hand: Hand) -> int:
    """The next request number; ignores requests made by faults."""
    return 1 + max((one for one in hand.used if one < LEAST_MADE_UP), default=-1)


def pack(tokens: list[int]) -> list[list[int]]:
    """Encodes tokens as runs: [token, count]."""
    runs: list[list[int]] = []
    for token in tokens:
        if runs and runs[-1][0] == token:
            runs[-1][1] += 1
        else:
            runs.append([token, 1])
    return runs


def unpack(runs: list[list[int]]) -> list[int]:
    return [token for token, count in runs for _ in range(count)]
