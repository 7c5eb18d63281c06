"""What happens to a storage. Drawn with a storage only; `restart` is in stored sequences only."""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.actions import Backup, Fetch, Lookup, Store
from hicache.core.components.base import UNBOUNDED
from hicache.core.events import (
    DeleteDone,
    DetachWanted,
    Event,
    EvictWanted,
    FetchDone,
    Flushed,
    LookupDone,
    PrefetchLimitReached,
    StorageAttached,
    StoreDone,
)
from hicache.core.types import Tier
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import Arguments, Operation
from invariants.fuzz.hicache.ops.cache import evict_each, take_all, wait
from invariants.fuzz.hicache.ops.plans import REVISIT_ARGS, arrivals, clear
from invariants.fuzz.hicache.ops.requests import (
    MOST_JOBS,
    OF_REQUEST,
    admit,
    arrive,
    draw_waiting,
    longest_pages,
    number_of,
)
from invariants.fuzz.sequence import (
    FLAG,
    MOST_TOKENS,
    OPTIONAL_FLAG,
    Schema,
    listed,
    number,
    pack,
    word,
)

RARELY = 20  # percent
ATTACH_ARGS: Schema = {"again": FLAG}


def draw_attach(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config.has_host or (hand.core.view.attached and not draws.chance(RARELY)):
        return None  # a storage that is detached is soon attached again
    return {"again": draws.chance(30)}


def attach(hand: Hand, args: Arguments) -> None:
    """A storage is attached, or detached if one is. again: attaches a
    storage also where one is attached, as after it was lost and came back.
    """
    if not (hand.config.has_host and hand.can_store):
        return
    detaches = hand.core.view.attached and not args["again"]
    hand.feed(DetachWanted() if detaches else StorageAttached())


def limit(hand: Hand, args: Arguments) -> None:
    """A waiting request has waited for its prefetch as long as it may."""
    job = hand.job(args["request"], "waiting")
    if job is not None:
        hand.feed(PrefetchLimitReached(job.id))


NOBODY = 1 << 30
KINDS = (
    "reply to nothing", "limit of nobody", "limit of a running one", "detach twice",
    "too many pages", "fewer than no pages", "attach without host",
)  # fmt: skip
MISTAKEN_ARGS: Schema = {"kind": word(*KINDS), "way": number()}
_REPLIES = ((Lookup, LookupDone), (Fetch, FetchDone), (Store, StoreDone))


def draw_mistaken(hand: Hand, draws: Draws) -> Arguments | None:
    return {"kind": draws.one(KINDS), "way": draws.below(4)}


def mistaken(hand: Hand, args: Arguments) -> None:
    """A forbidden event of the third tier. The core must refuse it and stay unchanged. Drawn with a
    storage only.
    """
    event = _event(hand, str(args["kind"]), int(args["way"]))
    if event is not None:
        hand.refused(event)


def _event(hand: Hand, kind: str, way: int) -> Event | None:
    running = next(iter(hand.pick("prefilling", "idle", "decoding")), None)
    if kind == "reply to nothing":
        return (LookupDone, FetchDone, StoreDone, DeleteDone)[way % 4](NOBODY)
    if kind == "limit of nobody":
        return PrefetchLimitReached(NOBODY)
    if kind == "limit of a running one" and running is not None:
        return PrefetchLimitReached(running.id)
    if kind == "detach twice" and not hand.core.view.attached:
        return DetachWanted()
    if kind == "attach without host" and not hand.config.has_host:
        return StorageAttached()
    for action, reply in _REPLIES:
        for one in hand.pending:
            if isinstance(one.action, action) and kind == "too many pages":
                return reply(one.number, NOBODY)
            if isinstance(one.action, action) and kind == "fewer than no pages":
                return reply(one.number, -1)
    return None


STEPS = (("store", 5), ("evict device", 4), ("backup", 1), ("evict host", 1))
MOST_STEPS = 12
OUTAGE_ARGS: Schema = {
    "steps": listed(word(*(name for name, _ in STEPS)), MOST_STEPS),
    "pages": number(1, MOST_TOKENS),
}


def draw_outage(hand: Hand, draws: Draws) -> Arguments | None:
    under_way = {type(one.action) for one in hand.pending} & {Store, Backup}
    if not under_way:
        return None
    first = ["store"] if Store in under_way else ["backup", "store"]
    steps = [draws.weighted(STEPS) for _ in range(draws.between(3, MOST_STEPS - len(first)))]
    return {"steps": [*first, *steps], "pages": draws.one((1, 1, 2, 4))}


def outage(hand: Hand, args: Arguments) -> None:
    """The storage is dead while stores fail, and the tree is eroded between one failure and the
    next. A store that fails is tried again soon. Evictions drawn one by one seldom come between
    its tries, and a storage that dies is often back before the last of them. Here, all stores in
    flight fail in a step (`store`), other steps evict or take backups, and the storage is back
    when time goes on. Drawn with a storage only, while stores or the backups before them are in
    flight.
    """
    hand.shelf.dead_until = max(hand.shelf.dead_until, hand.now + 1)
    for step in args.get("steps", ()):
        if step == "store":
            take_all(hand, Store)
        elif step == "backup":
            take_all(hand, Backup)
        else:
            evict_each(hand, Tier.DEVICE if step.endswith("device") else Tier.HOST, args["pages"])


def draw_restart(hand: Hand, draws: Draws) -> Arguments | None:
    return {} if hand.core.view.attached else None


def restart(hand: Hand, args: Arguments) -> None:
    """The process restarts: every request ends, the tree and both tiers are lost, and storage
    stays. A storage is attached again, as a new process does.
    """
    for job in list(hand.jobs.values()):
        hand.abort(job)
    hand.settle()
    hand.feed(Flushed())
    if hand.config.has_host and hand.can_store:
        hand.feed(StorageAttached())


EMPTY = ("both", "host", "flush", "wipe", "nothing")
WARM_ARGS: Schema = {
    **REVISIT_ARGS,
    "empty": word(*EMPTY),
    "late": number(0, 64),
    "attach": OPTIONAL_FLAG,
}
SOMETIMES = 50  # percent
MOST_BEYOND = 3  # pages behind what is stored


def draw_warm(hand: Hand, draws: Draws) -> Arguments | None:
    if not hand.config.has_host or len(hand.jobs) > MOST_JOBS:
        return None
    known = [(tokens[:most], space) for tokens, space, most in _stored(hand) if most]
    if not known and draws.chance(SOMETIMES):
        known = hand.past  # what is evicted now may be stored then
    if not known:
        return None
    tokens, space = draws.one(known)
    page = hand.config.page_size
    longest = max(2, page * min(longest_pages(hand), hand.config.device_pages[0]))
    beyond = draws.between(1, 1 + page * draws.below(MOST_BEYOND))
    tokens = [*tokens[: longest - 1], *[draws.below(3)] * beyond][:longest]
    first = number_of(hand)
    return {
        "request": first,
        "tokens": pack(tokens),
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


def warm(hand: Hand, args: Arguments) -> None:
    """One or more requests arrive for a prefix that storage has, after the tiers above were
    emptied. A storage is attached if there is none. Requests end and replies are taken, so that
    stores end. Then device, host or both are emptied by evictions or a flush, or the storage as
    well (`wipe`). All requests arrive in one entry, some replies are taken, and they are
    admitted.
    """
    if args.get("attach", False) and not hand.core.view.attached:
        attach(hand, {"again": True})
    if args.get("clear", False):
        clear(hand)
    if args.get("polls", 0):
        wait(hand, args)
    if args["empty"] in ("flush", "wipe"):
        hand.feed(Flushed(args["empty"] == "wipe"))
    elif args["empty"] == "both":
        _empty(hand, Tier.DEVICE)
        wait(hand, {"polls": 1 + args.get("polls", 0)})  # for what is written back and stored
        _empty(hand, Tier.DEVICE)
    if args["empty"] in ("both", "host"):
        _empty(hand, Tier.HOST)
    several = list(arrivals(hand, args))
    for one in several:
        arrive(hand, one)
    if args["late"]:
        wait(hand, {"polls": args["late"]})
    for one in several:
        admit(hand, one)


def _empty(hand: Hand, tier: Tier) -> None:
    for name, pool in zip(hand.config.components, hand.core.view.pools(tier), strict=True):
        hand.feed(EvictWanted(tier, name, pool.capacity))


OPS = {
    "attach": Operation(0, ATTACH_ARGS, draw_attach, attach),
    "limit": Operation(0, OF_REQUEST, draw_waiting, limit),
    "mistaken": Operation(0, MISTAKEN_ARGS, draw_mistaken, mistaken),
    "outage": Operation(0, OUTAGE_ARGS, draw_outage, outage),
    "restart": Operation(0, {}, draw_restart, restart),
    "warm": Operation(0, WARM_ARGS, draw_warm, warm),
}
