"""A request ends at a chosen point between the replies to its actions, and the tree is eroded then.

A request for a cached prefix arrives and is admitted, as in `revisit`. Chosen replies are taken in
a chosen order (`steps`). Then the request ends, or a reply that failed restarts it (`end`), while
other replies are still under way. Evictions, a flush, other requests and the remaining replies
follow (`then`). Operations that are drawn one by one seldom meet at such a point.
"""

from __future__ import annotations

from hicache.core.actions import Action, Backup, Load, Prefill
from hicache.core.events import EvictWanted
from hicache.core.types import Tier

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import MOST_TOKENS, NEW_REQUEST, Schema, listed, number, word
from . import abort, admit, arrive, finish, flush, grow, prefill, retract, revisit
from .base import Arguments

WEIGHT = 20
REPLIES: dict[str, type[Action]] = {"load": Load, "pass": Prefill, "backup": Backup}
STEPS = (*REPLIES, "chunk", "grow", "release")
ENDS = ("abort", "finish", "retract", "load fails", "pass fails", "none")
THEN = (*REPLIES, "evict device", "evict host", "flush", "admit", "grow", "again")
_DRAWN = tuple((one, 1 if one == "flush" else 4) for one in THEN)  # a flush ends most of a tree
MOST_WORDS = 8
ARGS: Schema = {
    **revisit.ARGS,
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


def draw(hand: Hand, draws: Draws) -> Arguments | None:
    if len(hand.jobs) >= arrive.MOST_JOBS:
        return None
    given = revisit.draw(hand, draws) if draws.chance(92) else None
    if given is None:
        if hand.config.has_host and draws.chance(60):
            return None  # later, something is on host to be loaded
        new = arrive.draw(hand, draws)
        if new is None:
            return None
        chunk = draws.between(1, arrive.longest(hand) * hand.config.page_size)
        given = {key: new[key] for key in ("request", "tokens", "space", "whole")}
        given |= {"cold": [], "chunk": chunk, "polls": 0, "others": [], "clear": draws.chance(30)}
    end = draws.weighted(_WEIGHTS)
    steps = draws.one(_OF_END[end])
    page = hand.config.page_size
    if "chunk" in steps or (end != "finish" and "grow" not in steps and draws.chance(30)):
        given["tokens"] = [*given["tokens"], [draws.below(3), page * draws.between(1, 3)]]
        given["chunk"] = draws.between(1, page)
    elif end == "finish" or "grow" in steps or draws.chance(50):
        given["chunk"] = arrive.longest(hand) * page
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


def play(hand: Hand, args: Arguments) -> None:
    acts, fault = hand.acts, _FAULTS.get(args["end"])
    if fault:
        hand.acts = tuple(act._replace(fault=fault) for act in acts)
    revisit.play(hand, args)
    request, chunk = args["request"], args["chunk"]
    for step in args.get("steps", ()):
        if step in REPLIES:
            _take(hand, request, step)
        elif step == "chunk":
            prefill.play(hand, {"request": request, "chunk": chunk})
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
    grow.play(hand, {"request": request, "more": more, "behind": 0, "word": 0})


def _release(hand: Hand, most: int, request: int = -1) -> None:
    """Lets up to `most` requests without a pass end, except `request`, so that pages come free."""
    others = [one for one in hand.pick("decoding", "idle") if one.id != request]
    for job in others[:most]:
        _end(hand, job.id, "finish" if job.stage == "decoding" else "retract")


def _empty(hand: Hand) -> None:
    """Lets every pass and every admitted request end, because a flush is refused before."""
    for one in [one for one in hand.pending if isinstance(one.action, Prefill)]:
        if one in hand.pending:
            hand.take(one)
            hand.finish()
    _release(hand, len(hand.jobs))


def _end(hand: Hand, request: int, end: str) -> None:
    if end == "abort":
        abort.play(hand, {"request": request})
    elif end == "finish":
        finish.play(hand, {"request": request, "ahead": 0})
    elif end == "retract":
        retract.play(hand, {"request": request})
    elif end != "none":
        _take(hand, request, end.removesuffix(" fails"))


def _follow(hand: Hand, args: Arguments, what: str) -> None:
    if what in REPLIES:
        _take(hand, args["request"], what)
    elif what.startswith("evict"):
        tier = Tier.DEVICE if what.endswith("device") else Tier.HOST
        for name in reversed(hand.config.components):
            hand.feed(EvictWanted(tier, name, args["pages"]))
    elif what == "flush":
        _empty(hand)
        flush.play(hand, {})
    elif what == "grow":
        for job in hand.pick("decoding")[:1]:
            _grow(hand, job.id)
    elif what == "admit":
        for job in hand.pick("waiting")[:1]:
            admit.play(hand, {"request": job.id, "chunk": args["chunk"]})
    else:
        again = {**args, "request": args["again"]}
        arrive.play(hand, again)
        admit.play(hand, again)
