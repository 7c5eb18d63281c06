"""Plans of many events, which operations that are drawn one by one seldom make up."""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.actions import Action, Backup, Load, Prefill
from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import Arguments, Operation
from invariants.fuzz.hicache.ops.cache import evict_each, flush, take_all, wait
from invariants.fuzz.hicache.ops.requests import (
    MOST_JOBS,
    abort,
    admit,
    arrive,
    draw_arrive,
    finish,
    grow,
    longest_pages,
    number_of,
    prefill,
    retract,
)
from invariants.fuzz.hicache.spell import cached, on_host_alone, tokens_of
from invariants.fuzz.records import LEAST_MADE_UP
from invariants.fuzz.sequence import (
    FLAG,
    MOST_TOKENS,
    NEW_REQUEST,
    OPTIONAL_FLAG,
    PROMPT,
    WORDS,
    Schema,
    listed,
    number,
    pack,
    unpack,
    word,
)

REVISIT_ARGS: Schema = {
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


def draw_revisit(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config.has_host or len(hand.jobs) >= MOST_JOBS:
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
    longest = max(2, page * min(longest_pages(hand), hand.config.device_pages[0]))
    beyond = draws.between(1, 1 + page)
    tokens = [*tokens[: longest - 1], *[draws.below(3)] * beyond][:longest]
    every = draws.chance(60)
    cold = [name for name in hand.config.components if every or draws.chance(50)]
    cold = [] if left else cold
    return {
        "request": number_of(hand),
        "tokens": pack(tokens),
        "space": space,
        "whole": False,
        "cold": cold,
        "chunk": draws.between(1, longest),
        "polls": draws.one((0, 1, 4)),
        "others": [number_of(hand) + more for more in range(1, draws.one((1, 1, 2, 2, 3)))],
        "clear": draws.chance(60),
    }


def revisit(hand: Hand, args: Arguments) -> None:
    """One or more requests arrive for a prefix that is cached on host, which leads to loads. Where
    nothing is on host alone, and sometimes elsewhere, some components are first evicted from
    device. Replies are then taken, so that written-back pages reach host. Then all requests
    arrive in one entry.
    """
    if args.get("clear", False):
        clear(hand)
    for name in args["cold"]:
        if name in hand.config.components:
            at = hand.config.components.index(name)
            pages = hand.core.view.pool(Tier.DEVICE, at).capacity
            hand.feed(EvictWanted(Tier.DEVICE, name, pages))
    if args.get("polls", 0):
        wait(hand, args)
    for one in arrivals(hand, args):
        arrive(hand, one)
        admit(hand, one)


def arrivals(hand: Hand, args: Arguments) -> Iterator[Arguments]:
    """The arguments of each arrival. Each further request shares one page less with the first."""
    tokens = unpack(args["tokens"])
    for turn, request in enumerate((args["request"], *args.get("others", ()))):
        keep = max(1, len(tokens) - turn * hand.config.page_size)
        yield {**args, "request": request, "tokens": pack(tokens[:keep])}


def clear(hand: Hand) -> None:
    """Takes replies, then finishes decoding requests and retracts idle ones, which frees their
    pages.
    """
    wait(hand, {"polls": 2})
    for job in hand.pick("decoding", "idle"):
        if job.stage == "decoding" and job.id < LEAST_MADE_UP:
            finish(hand, {"request": job.id, "ahead": 0})
        elif job.id < LEAST_MADE_UP:
            hand.retract(job)
        else:
            hand.abort(job)


REPLIES: dict[str, type[Action]] = {"load": Load, "pass": Prefill, "backup": Backup}
STEPS = (*REPLIES, "chunk", "grow", "release")
ENDS = ("abort", "finish", "retract", "load fails", "pass fails", "none")
THEN = (*REPLIES, "evict device", "evict host", "flush", "admit", "grow", "again")
_DRAWN = tuple((one, 1 if one == "flush" else 4) for one in THEN)  # a flush ends most of a tree
MOST_WORDS = 8
INTERRUPT_ARGS: Schema = {
    **REVISIT_ARGS,
    "steps": listed(word(*STEPS), MOST_WORDS),
    "end": word(*ENDS),
    "then": listed(word(*THEN), MOST_WORDS),
    "pages": number(1, MOST_TOKENS),
    "again": NEW_REQUEST,
}
_WAITING: tuple[str, ...] = ()
_PREFILLING = (_WAITING, ("load",))
_LEAVES_LOAD, _LEAVES_BACKUP = ("pass",), ("pass", "load")
_AFTER_A_PASS = (_LEAVES_LOAD, _LEAVES_BACKUP, ("load", "pass"), ("pass", "load", "backup"))
_GROWING = (
    ("pass", "grow"),
    ("pass", "load", "grow", "release", "grow"),
    ("pass", "load", "backup", "grow", "grow"),
)
_CHUNKS = (("pass", "chunk"), ("pass", "chunk", "pass"), ("pass", "load", "chunk", "pass"))
_OF_END = {
    "abort": (*_PREFILLING, *_PREFILLING, *_AFTER_A_PASS, *_GROWING, *_CHUNKS),
    "finish": (*_AFTER_A_PASS, *_AFTER_A_PASS, *_GROWING),
    "retract": (*_AFTER_A_PASS, *_AFTER_A_PASS, *_GROWING, *_CHUNKS),
    "load fails": (_WAITING,),
    "pass fails": (*_PREFILLING, ("pass", "chunk")),
    "none": (*_GROWING, *_CHUNKS),
}
_FAULTS = {"load fails": "fail", "pass fails": "pass error"}
_WEIGHTS = (
    *(("abort", 34), ("finish", 17), ("retract", 22)),
    *(("load fails", 11), ("pass fails", 11), ("none", 5)),
)


def draw_interrupt(hand: Hand, draws: Draws) -> Arguments | None:
    if len(hand.jobs) >= MOST_JOBS:
        return None
    given = draw_revisit(hand, draws) if draws.chance(92) else None
    if given is None:
        if hand.config.has_host and draws.chance(60):
            return None  # later, something is on host to be loaded
        new = draw_arrive(hand, draws)
        if new is None:
            return None
        chunk = draws.between(1, longest_pages(hand) * hand.config.page_size)
        given = {key: new[key] for key in ("request", "tokens", "space", "whole")}
        given |= {"cold": [], "chunk": chunk, "polls": 0, "others": [], "clear": draws.chance(30)}
    end = draws.weighted(_WEIGHTS)
    steps = draws.one(_OF_END[end])
    page = hand.config.page_size
    if "chunk" in steps or (end != "finish" and "grow" not in steps and draws.chance(30)):
        given["tokens"] = [*given["tokens"], [draws.below(3), page * draws.between(1, 3)]]
        given["chunk"] = draws.between(1, page)
    elif end == "finish" or "grow" in steps or draws.chance(50):
        given["chunk"] = longest_pages(hand) * page
    then = [draws.weighted(_DRAWN) for _ in range(draws.between(1, 4))]
    last = max(given["request"], *given["others"]) if given["others"] else given["request"]
    return {
        **given,
        "steps": list(steps),
        "end": end,
        "then": then,
        "pages": draws.one((1, 2, 4, MOST_TOKENS)),
        "again": last + 1,
    }


def interrupt(hand: Hand, args: Arguments) -> None:
    """A request ends at a chosen point between the replies to its actions, and the tree is eroded
    then. A request for a cached prefix arrives and is admitted, as in `revisit`. Chosen replies
    are taken in a chosen order (`steps`). Then the request ends, or a reply that failed restarts
    it (`end`), while other replies are still under way. Evictions, a flush, other requests and
    the remaining replies follow (`then`). Operations that are drawn one by one seldom meet at
    such a point.
    """
    acts, fault = hand.acts, _FAULTS.get(args["end"])
    if fault:
        hand.acts = tuple(act._replace(fault=fault) for act in acts)
    revisit(hand, args)
    request, chunk = args["request"], args["chunk"]
    for step in args.get("steps", ()):
        if step in REPLIES:
            _take(hand, request, step)
        elif step == "chunk":
            prefill(hand, {"request": request, "chunk": chunk})
        elif step == "grow":
            _grow(hand, request)
        else:
            _release(hand, 1, request)
    _end(hand, request, args["end"])
    hand.acts = acts
    for what in args.get("then", ()):
        _follow(hand, args, what)


def _take(hand: Hand, request: int, kind: str) -> None:
    """Takes the reply to the request's load or pass, or to the oldest backup, if there is one."""
    for one in hand.pending:
        action = one.action
        mine = isinstance(action, Backup) or getattr(action, "request", -1) == request
        if mine and isinstance(action, REPLIES[kind]):
            hand.take(one)
            hand.finish()
            return


def _grow(hand: Hand, request: int) -> None:
    more = hand.config.page_size
    grow(hand, {"request": request, "more": more, "behind": 0, "word": 0})


def _release(hand: Hand, most: int, request: int = -1) -> None:
    """Lets up to `most` requests without a pass end, except `request`, so that pages come free."""
    others = [one for one in hand.pick("decoding", "idle") if one.id != request]
    for job in others[:most]:
        _end(hand, job.id, "finish" if job.stage == "decoding" else "retract")


def _empty(hand: Hand) -> None:
    """Lets every pass and every admitted request end, because a flush is refused before."""
    take_all(hand, Prefill)
    _release(hand, len(hand.jobs))


def _end(hand: Hand, request: int, end: str) -> None:
    if end == "abort":
        abort(hand, {"request": request})
    elif end == "finish":
        finish(hand, {"request": request, "ahead": 0})
    elif end == "retract":
        retract(hand, {"request": request})
    elif end != "none":
        _take(hand, request, end.removesuffix(" fails"))


def _follow(hand: Hand, args: Arguments, what: str) -> None:
    if what in REPLIES:
        _take(hand, args["request"], what)
    elif what.startswith("evict"):
        evict_each(hand, Tier.DEVICE if what.endswith("device") else Tier.HOST, args["pages"])
    elif what == "flush":
        _empty(hand)
        flush(hand, {})
    elif what == "grow":
        for job in hand.pick("decoding")[:1]:
            _grow(hand, job.id)
    elif what == "admit":
        for job in hand.pick("waiting")[:1]:
            admit(hand, {"request": job.id, "chunk": args["chunk"]})
    else:
        again = {**args, "request": args["again"]}
        arrive(hand, again)
        admit(hand, again)


OPS = {
    "revisit": Operation(14, REVISIT_ARGS, draw_revisit, revisit),
    "interrupt": Operation(20, INTERRUPT_ARGS, draw_interrupt, interrupt),
}
