"""A request arrives; its prompt often starts like an earlier one."""

from __future__ import annotations

from hicache.core.events import Arrived
from hicache.core.types import MOST_PRIORITY

from ..draws import Draws
from ..hand import Hand, Job
from ..tapes.schema import FLAG, LEAST_MADE_UP, NEW_REQUEST, PROMPT, Schema, number, word
from .base import Arguments

WEIGHT = 12
MOST_JOBS = 6
LONGEST = 12  # pages
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
    words = [draws.below(3) for _ in range(LONGEST)]
    size = min(draws.between(1, LONGEST * page), draws.between(1, LONGEST * page))
    tokens = [words[at // page] for at in range(size)]
    space = draws.one(("", "", "", "lora"))
    if hand.past and draws.chance(60):
        old, space = draws.one(hand.past)
        keep = len(old) if draws.chance(50) else draws.between(1, len(old))
        room = max(1, LONGEST * page - keep)
        tokens = old[:keep] + tokens[:room]
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
